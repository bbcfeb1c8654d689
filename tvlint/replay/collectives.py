"""Run collectives on the numbers of their members."""

from __future__ import annotations

from collections.abc import Sequence

from tvlint.ir.operators import Collective, Communicate
from tvlint.ops.field import Array
from tvlint.replay.operators import NotReplayedError


def combine(values: Sequence[Array], how: str, members: int = 0) -> Array:
    """Return the reduction of the values of all members; of a gradient that some of the `members` lack it is zero there."""
    import numpy as np

    if len({value.shape for value in values}) > 1:
        raise NotReplayedError("members of a reduction give different shapes")
    stacked = np.stack(values)
    match how:
        case "" | "sum":
            return np.asarray(stacked.sum(axis=0))
        case "avg":
            return np.asarray(stacked.sum(axis=0) / (members or len(values)))
        case "max":
            return np.asarray(stacked.max(axis=0))
        case "min":
            return np.asarray(stacked.min(axis=0))
        case "product":
            return np.asarray(stacked.prod(axis=0))
    raise NotReplayedError(f"a reduction by `{how}`")


def exchange(members: Sequence[Communicate], values: Sequence[Array | None], ranks: Sequence[int]) -> list[Array | None]:
    """Return what each member gets; `values` are what they give, in the order of `ranks`."""
    first, rank = members[0], max((value.ndim for value in values if value is not None), default=0)
    if len({(member.kind, member.reduce, member.way(rank), member.root) for member in members}) > 1:
        raise NotReplayedError("members of a collective run different ones")
    match first.kind:
        case Collective.BARRIER:
            return [None for _ in ranks]
        case Collective.CHUNK:
            return [
                _parts(value, first.dim, len(ranks), member.splits)[at]
                if member.splits
                else part_of(value, first.dim, at, len(ranks))
                for at, (value, member) in enumerate(zip(_all(values), members, strict=True))
            ]
    given = _all(values)
    if first.root is not None and first.root not in ranks:
        raise NotReplayedError(f"rank {first.root} is no member of a collective from it or to it")
    at_root = None if first.root is None else list(ranks).index(first.root)
    match first.kind:
        case Collective.ALL_REDUCE:
            return [combine(given, first.reduce)] * len(ranks)
        case Collective.REDUCE:
            return [combine(given, first.reduce) if at == at_root else given[at] for at in range(len(ranks))]
        case Collective.REDUCE_SCATTER:
            return list(_parts(combine(given, first.reduce), first.dim, len(ranks), first.splits))
        case Collective.ALL_GATHER:
            return [_joined(given, first.dim)] * len(ranks)
        case Collective.GATHER:
            return [_joined(given, first.dim) if at == at_root else None for at in range(len(ranks))]
        case Collective.BROADCAST:
            return [given[0 if at_root is None else at_root] for _ in ranks]
        case Collective.SCATTER:
            return list(_parts(given[0 if at_root is None else at_root], first.dim, len(ranks), first.splits))
        case Collective.ALL_TO_ALL:
            sent = [_parts(value, member.dim, len(ranks), member.splits) for value, member in zip(given, members, strict=True)]
            return [_joined([parts[at] for parts in sent], first.joined_dim) for at in range(len(ranks))]
    raise AssertionError(f"a collective of a kind that is not run: {first.kind}")


def _all(values: Sequence[Array | None]) -> list[Array]:
    found = [value for value in values if value is not None]
    if len(found) != len(values):
        raise NotReplayedError("a member of a collective has nothing to give")
    return found


def _parts(value: Array, dim: int | None, count: int, splits: Sequence[int]) -> list[Array]:
    import numpy as np

    size = _size(value, dim)
    if (len(splits) != count or sum(splits) != size) if splits else size % count:
        raise NotReplayedError(f"a cut of shape {value.shape} into {count} parts")
    places = list(np.cumsum(splits)[:-1]) if splits else count
    return list(np.split(value, places, axis=dim or 0))


def part_of(value: Array, dim: int | None, at: int, count: int) -> Array:
    """Return one of `count` equal parts of a value along a dimension. Raises NotReplayedError where there is none."""
    size = _size(value, dim)
    if dim is None or size % count:
        raise NotReplayedError(f"a cut of shape {value.shape} into {count} parts")
    length = size // count
    return value[(slice(None),) * (dim % value.ndim) + (slice(at * length, (at + 1) * length),)]


def _joined(values: Sequence[Array], dim: int | None) -> Array:
    import numpy as np

    around = set()
    for value in values:
        _size(value, dim)
        at = (dim or 0) % value.ndim
        around.add((value.shape[:at], value.shape[at + 1 :]))
    if len(around) > 1:
        raise NotReplayedError("parts of a gather do not fit each other")
    return np.asarray(np.concatenate(values, axis=dim or 0))


def _size(value: Array, dim: int | None) -> int:
    """Return the size of a dimension. Raises NotReplayedError where there is none."""
    if dim is None or not -value.ndim <= dim < value.ndim:
        raise NotReplayedError(f"a part of shape {value.shape} along no dimension of it")
    return int(value.shape[dim])
