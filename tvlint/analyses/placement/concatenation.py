"""Shards that are put together along the dimension that is split: packed, each part split on its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tvlint.analyses.placement.domain import On
from tvlint.analyses.placement.state import Walk
from tvlint.ir.placement import Shard
from tvlint.ops.spec import Bound


def packed(walk: Walk, bound: Bound, names: Sequence[str]) -> dict[str, On]:
    """Return by axis: how the concatenation `bound` of `names` lies, where each is split along the dimension that is joined."""
    lengths = [shape for name in names if (shape := walk.shape(name)) is not None]
    reduced = [set(operand) - set(bound.outputs[0]) for operand in bound.operands]
    if len(names) < 2 or len(lengths) < len(names) or any(len(part) != 1 for part in reduced):
        return {}
    dim = next(at for at, name in enumerate(bound.operands[0]) if name in reduced[0])
    found: dict[str, On] = {}
    for axis in walk.axes:
        placed = [walk.value(name).on.get(axis) for name in names]
        rank, size = len(bound.operands[0]), walk.plan.mesh.axis_size(axis)
        plain = all(isinstance(on, Shard) and on.dim % rank == dim and not on.order and not on.parts for on in placed)
        if plain and all(one == other for one, other in pairwise(placed)):
            found[axis] = Shard(dim, parts=tuple(shape[dim] * size for shape in lengths))
    return found
