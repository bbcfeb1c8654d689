"""Map sharded dimensions through a change of shape."""

from __future__ import annotations

from math import prod

from tvlint.analyses.placement.domain import On, Shuffled
from tvlint.ir.placement import Shard


def reshaped(placement: On, before: tuple[int, ...] | None, after: tuple[int, ...] | None, parts: int) -> On:
    """Return the placement of the reshaped tensor, by local shapes; unknown where the pieces of a rank do not stay in order.

    A sharded dimension stays sharded as the outermost of the dimensions it is split into, or when it is the outermost of
    those it is merged with. Merged behind others, a rank holds several pieces of the result.
    """
    if not isinstance(placement, Shard):
        return None if isinstance(placement, Shuffled) else placement
    if before is None or after is None or placement.parts or parts < 1 or prod(before) != prod(after) or not prod(before):
        return None
    if not -len(before) <= placement.dim < len(before):
        return None
    dim = placement.dim % len(before)
    outside, size = prod(before[:dim]), before[dim]
    if _is_open(after, outside, size) and parts > 1:
        heads = (*before[:-1], 1, size)
        return Shard(dim) if dim == len(before) - 1 > 0 and after == heads and not placement.order else None
    found = _same_start(after, outside, size)
    if placement.order:
        return _unmerged(placement, after, outside, parts) if found is None else _kept(placement, found, size, after)
    return Shard(found) if found is not None else _merged(after, outside, size * prod(before[dim + 1 :]), parts)


def _same_start(after: tuple[int, ...], outside: int, size: int) -> int | None:
    """The dimension that begins where the sharded one did; one of size 1 only stands for one of size 1."""
    starts = [at for at in range(len(after)) if prod(after[:at]) == outside]
    wide = [at for at in starts if size == 1 or after[at] != 1]
    return wide[0] if wide else None


def _is_open(after: tuple[int, ...], outside: int, size: int) -> bool:
    """Return whether local shapes do not tell which dimension is sharded: one of size 1 may be what is left of the outer one.
    """
    starts = [at for at in range(len(after)) if prod(after[:at]) == outside]
    return size != 1 and len(starts) > 1 and after[starts[0]] == 1


def _kept(placement: Shard, at: int, size: int, after: tuple[int, ...]) -> On:
    return Shard(at, placement.order) if after[at] == size else None


def _merged(after: tuple[int, ...], outside: int, piece: int, parts: int) -> On:
    """Return the dimension that the sharded one is now the inner part of: a rank holds a `piece` for each of the outer part."""
    for at in range(len(after)):
        start, inside = prod(after[:at]), prod(after[at + 1 :])
        if outside % start == 0 and start < outside and piece % inside == 0 and piece >= inside:
            repeats = outside // start
            if repeats > 1 << 12:
                return None
            return Shard(at, tuple(tuple(range(rank, repeats * parts, parts)) for rank in range(parts)))
    return None


def _unmerged(placement: Shard, after: tuple[int, ...], outside: int, parts: int) -> On:
    """Return the reverse: the dimension within which each rank holds one piece."""
    repeats = len(placement.order[0])
    if placement.order != tuple(tuple(range(rank, repeats * parts, parts)) for rank in range(parts)):
        return None
    for at in range(len(after)):
        if prod(after[:at]) == outside * repeats and after[at] != 1:
            return Shard(at)
    return None
