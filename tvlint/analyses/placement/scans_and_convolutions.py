"""Operators in which every position takes from its neighbours or from all before it: along a sharded dimension they end at
the shard."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.axes import SEQUENCE_AXES, batch_axes, traded_axes
from tvlint.analyses.placement.domain import On
from tvlint.analyses.placement.state import Walk
from tvlint.ir.operators import Collective, Communicate, Compute, Literal
from tvlint.ir.placement import Replicate, Shard
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_kind, row_of

_CARRYING = (Collective.ALL_GATHER, Collective.ALL_TO_ALL, Collective.BROADCAST)


def scans(walk: Walk, operator: Compute) -> Iterator[tuple[str, str, str]]:
    """Yield the rule, the tensor and the axis, for every axis over which a running function or convolution sees a shard only.
    """
    first = operator.inputs[0] if operator.inputs else None
    if not isinstance(first, str):
        return
    rank = len(walk.shape(first) or ())
    for axis in walk.axes:
        on = walk.value(first).on.get(axis)
        if isinstance(on, Shard) and rank and _runs_along(walk, operator, on.dim % rank, rank, axis):
            yield "scan-over-shards", first, axis


def _runs_along(walk: Walk, operator: Compute, dim: int, rank: int, axis: str) -> bool:
    row = row_of(operator.op)
    constants = [operand.value for operand in operator.inputs if isinstance(operand, Literal)]
    if row is not None and Trait.SCAN in row.traits and row.dimension is not None:
        if dim == 0 and axis in walk.facts.derived("batch axes", lambda: batch_axes(walk.plan)) - SEQUENCE_AXES:
            return False
        at, _ = row.dimension
        given = operator.attributes.get("dim", operator.attributes.get("dims", constants[at] if len(constants) > at else None))
        dims = given if isinstance(given, tuple) else (given,)
        return any(isinstance(each_dim, int) and each_dim % rank == dim for each_dim in dims)
    if has_kind(operator.op, Trait.CONVOLUTION):
        return dim >= 2 and _kernel(walk, operator, dim) > 1
    if has_kind(operator.op, Trait.RECURRENCE) and axis in SEQUENCE_AXES and rank > 2 and dim in (1, 2):
        return axis not in walk.facts.derived("axes that are traded or split by weights", lambda: traded_axes(walk.plan))
    return False


def _kernel(walk: Walk, operator: Compute, dim: int) -> int:
    weight = operator.inputs[1] if len(operator.inputs) > 1 else None
    shape = (walk.shape(weight) or ()) if isinstance(weight, str) else ()
    return shape[dim] if dim < len(shape) else (shape[-1] if shape else 0)


def carries(facts: Facts, axis: str) -> bool:
    """Return whether anything runs along the axis by which ranks could hand on what a shard lacks."""
    sizes = facts.plan.mesh
    for source, target, _ in facts.traffic.channels:
        if max(source, target) < sizes.size and sizes.coordinates(source)[axis] != sizes.coordinates(target)[axis]:
            return True
    every = [axis.name for axis in sizes.axes]
    return any(
        isinstance(operator, Communicate) and operator.kind in _CARRYING and axis in (operator.group.axes or every)
        for segment in facts.plan.segments.values() for operator in segment.operators
    )  # fmt: skip


def channelwise(walk: Walk, operator: Compute) -> dict[str, On]:
    """Return how a convolution lies that treats every channel on its own: by channels, where input and weight do."""
    names = [name for name in operator.inputs if isinstance(name, str)]
    shapes = [walk.shape(name) for name in names]
    if not has_kind(operator.op, Trait.CONVOLUTION) or len(names) < 2 or shapes[0] is None or shapes[1] is None:
        return {}
    source, weight = shapes[0], shapes[1]
    if len(source) < 3 or not source[1] == weight[0] == operator.attributes.get("groups"):
        return {}
    found: dict[str, On] = {}
    for axis in walk.axes:
        lies = [walk.value(name).on.get(axis) for name in names]
        if isinstance(lies[0], Shard) and lies[0].dim % len(source) == 1 and all(each == Shard(0) for each in lies[1:]):
            found[axis] = Shard(1)
        elif isinstance(lies[0], Shard | Replicate) and all(isinstance(placement, Replicate) for placement in lies[1:]):
            split = isinstance(lies[0], Shard) and lies[0].dim % len(source) > 0
            found[axis] = None if split else lies[0]
    return {axis: on for axis, on in found.items() if on is not None}
