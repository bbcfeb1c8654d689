"""Operators that pick elements along a dimension by comparing all of them: of a shard they pick among its own."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.placement.axes import SEQUENCE_AXES, batch_axes
from tvlint.analyses.placement.reach import sent_on
from tvlint.analyses.placement.state import Walk
from tvlint.ir.operators import Compute, Literal
from tvlint.ir.placement import Shard
from tvlint.ops.spec import Trait
from tvlint.ops.table import row_of


def choices(walk: Walk, operator: Compute) -> Iterator[tuple[str, str, str]]:
    """Yield the rule, the tensor and the axis, for every axis over which the operator picks within a shard, and nothing that is
    made of what it picked meets what the other ranks did. Rows of a batch are picked among on every rank by themselves.
    """
    row = row_of(operator.op)
    first = operator.inputs[0] if operator.inputs else None
    if row is None or Trait.CHOICE not in row.traits or row.dimension is None or not isinstance(first, str):
        return
    rank, (at, usual) = len(walk.shape(first) or ()), row.dimension
    constants = [operand.value for operand in operator.inputs if isinstance(operand, Literal)]
    dim = operator.attributes.get("dim", constants[at] if len(constants) > at else usual)
    names = walk.facts.derived("batch axes", lambda: batch_axes(walk.plan)) | SEQUENCE_AXES
    for axis in walk.axes:
        on = walk.value(first).on.get(axis)
        if not isinstance(on, Shard) or not rank or axis in names:
            continue
        along = dim is None or (isinstance(dim, int) and not isinstance(dim, bool) and dim % rank == on.dim % rank)
        if along and not sent_on(walk, [name for name in operator.outputs if name], axis):
            yield "choice-over-shards", first, axis
