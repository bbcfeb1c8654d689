"""Random numbers of distributed tensors, drawn on a CPU as on GPUs: each rank takes its shard of those of the whole tensor.

DTensor does so for devices that can skip numbers; on a CPU every rank would draw its shard by itself, and weights that
are filled behind `fully_shard` would be none of the program on one rank.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tvlint.capture.imports import Change


def changes(replace: Callable[[str], object]) -> dict[str, Change]:
    """Return the changes of torch's own modules by which distributed tensors draw the numbers of the whole."""
    return {"torch.distributed.tensor._random": lambda module: _draw_whole(module, replace)}


def _draw_whole(module: Any, replace: Callable[[str], object]) -> None:
    module._rng_tracker = _WholeDraws(replace)
    module.is_rng_supported_mesh = lambda _: True


class _WholeDraws:
    """Takes the place of what keeps the states of random numbers of a GPU."""

    distribute_region_enabled = True

    def __init__(self, replace: Callable[[str], object]) -> None:
        self.replace = replace

    def _manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    @contextlib.contextmanager
    def _distribute_region(self, spec: Any, generator: torch.Generator | None = None) -> Iterator[None]:
        with _OfWhole(spec, generator, self.replace):
            yield


class _OfWhole(TorchDispatchMode):
    """Runs what draws numbers for a shard on the whole tensor, and keeps the shard."""

    def __init__(self, spec: Any, generator: torch.Generator | None, replace: Callable[[str], object]) -> None:
        super().__init__()
        self.spec, self.generator, self.replace = spec, generator, replace

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [argument for argument in args if isinstance(argument, torch.Tensor)]
        if self.generator is not None and torch.Tag.nondeterministic_seeded in func.tags:
            kwargs["generator"] = self.generator
        draws = torch.Tag.nondeterministic_seeded in func.tags and len(tensors) == 1 and _fills(func)
        if not draws or tensors[0].shape == self.spec.shape:
            return func(*args, **kwargs)
        (local,) = tensors
        whole = torch.empty(self.spec.shape, dtype=local.dtype)
        drawn = func(*(whole if argument is local else argument for argument in args), **kwargs)
        shard = _shard_of(drawn, self.spec)
        if shard.shape != local.shape:
            raise RuntimeError(f"a shard of shape {tuple(local.shape)} of a tensor of shape {tuple(self.spec.shape)}")
        self.replace("random numbers of distributed tensors drawn for the whole tensor on each rank")
        return local.copy_(shard) if func._schema.is_mutable else shard.clone()


def _fills(func: Any) -> bool:
    """Return whether an operator draws numbers whatever its tensor holds."""
    return bool(func._schema.is_mutable) or func._schema.name.endswith("_like")


def _shard_of(whole: torch.Tensor, spec: Any) -> torch.Tensor:
    """Return the shard of this rank."""
    for axis, placement in enumerate(spec.placements):
        if hasattr(placement, "_split_tensor"):
            parts, _ = placement._split_tensor(whole, spec.mesh.size(axis), with_padding=False, contiguous=False)
            whole = parts[spec.mesh.get_local_rank(axis)]
    return whole
