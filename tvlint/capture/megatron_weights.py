"""The weights of Megatron-Core by the names that checkpoints give them, and where the piece of a rank lies in all of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class Piece:
    """A weight by its name in the whole model: its parameter, what the rank holds, the shape of all, where the piece begins."""

    name: str
    weight: torch.Tensor
    data: torch.Tensor
    whole: Sequence[int]
    start: Sequence[int]


def says_pieces(root: nn.Module) -> bool:
    """Return whether a module says which pieces of weights it holds, as those of Megatron do."""
    return hasattr(_inner(root), "sharded_state_dict")


def _inner(root: nn.Module) -> nn.Module:
    """Return the module that wrappers hold."""
    while isinstance(getattr(root, "module", None), nn.Module):
        root = root.module
    return root


def pieces_of(root: nn.Module) -> Iterator[Piece]:
    """Yield the pieces of weights that the rank holds; a weight that is stored in several pieces has one dimension more."""
    root = _inner(root)
    known = {parameter.data_ptr(): parameter for parameter in root.parameters() if parameter.numel()}
    for shards in _shards(root.sharded_state_dict(prefix="")):
        weight = known.get(shards[0].data.data_ptr())
        if weight is None:
            continue
        first, parts = shards[0], len(shards)
        rest = slice(first.prepend_axis_num, None)
        whole, start = list(first.global_shape)[rest], list(first.global_offset)[rest]
        data = weight.detach()
        if parts > 1:
            whole[0] //= parts if len({shard.key for shard in shards}) == 1 else 1
            begins = [shard.global_offset[first.prepend_axis_num] - start[0] for shard in shards]
            if data.shape[0] % parts or any(begin not in (0, at * whole[0]) for at, begin in enumerate(begins)):
                continue
            whole, start = [parts, *whole], [0, *start]
            data = data.view(parts, data.shape[0] // parts, *data.shape[1:])
        yield Piece(_name(first), weight, data, whole, start)


def _shards(state: Any) -> Iterator[list[Any]]:
    """Yield the shards that each entry of a state is written as."""
    if isinstance(state, dict):
        for each in state.values():
            yield from _shards(each)
    elif isinstance(state, list | tuple):
        for each in state:
            yield from _shards(each)
    elif hasattr(state, "build") and hasattr(state, "data"):
        yield [each for one in _shards(state.build()) for each in one]
    elif getattr(state, "global_offset", None) is not None and isinstance(getattr(state, "data", None), torch.Tensor):
        yield [state]


def _name(shard: Any) -> str:
    """Return the name of a weight with the numbers of its layer and expert, which stand in the offset of its shard."""
    name: str = shard.key
    for word, number in zip(("layers.", "experts."), shard.global_offset[: shard.prepend_axis_num], strict=False):
        before, found, after = name.rpartition(word)
        name = f"{before}{found}{number}.{after}" if found else f"{name}.{number}"
    return name


_WORDS = "word_embeddings.weight"


def fill(root: nn.Module) -> None:
    """Fill the pieces of weights of a module with their parts of the numbers that the names of the weights give.

    Ranks and the reference then start from the same weights, in whatever order each makes its own. The numbers of words are ten
    times as large where the model has experts: what layers add is much the same for all tokens, and routers would send them
    to the same ones.
    """
    has_experts = bool(getattr(getattr(_inner(root), "config", None), "num_moe_experts", None))
    for piece in pieces_of(root):
        _fill(piece, 1.0 if has_experts and piece.name.endswith(_WORDS) else 0.1)


def _fill(piece: Piece, scale: float) -> None:
    """Fill a piece. A weight of one number throughout, as those of norms, stays near it."""
    seed = int.from_bytes(hashlib.sha256(piece.name.encode()).digest()[:6], "little")
    numbers = scale * torch.randn(tuple(piece.whole), generator=torch.Generator().manual_seed(seed))
    for dim, (start, size) in enumerate(zip(piece.start, piece.data.shape, strict=True)):
        numbers = numbers.narrow(dim, start, size)
    first = piece.data.flatten()[0]
    middle = first if bool((piece.data == first).all()) else torch.zeros_like(first)
    piece.data.copy_(middle + numbers)
