"""Operators that pick elements along a dimension by comparing all of them: of a shard they pick among its own."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.placement.axes import SEQUENCE_AXES, batch_axes
from tvlint.analyses.placement.reach import sent_on
from tvlint.analyses.placement.state import Walk
from tvlint.ir.operators import Compute, Literal
from tvlint.ir.placement import Shard

_LAST = -1
_PICKS: dict[str, tuple[int, int | None]] = {
    "argmax": (0, None), "argmin": (0, None), "topk": (1, _LAST), "sort": (0, _LAST), "argsort": (0, _LAST),
    "kthvalue": (1, _LAST),
}  # fmt: skip
"""Functions, which of their constants names the dimension where no attribute does, and the dimension without either."""


def choices(walk: Walk, operator: Compute) -> Iterator[tuple[str, str, str]]:
    """The rule, the tensor and the axis, for every axis over which the operator picks within a shard, and nothing that is made
    of what it picked meets what the other ranks did. Rows of a batch are picked among on every rank by themselves."""
    last = operator.op.rsplit(".", 1)[-1].lower()
    first = operator.inputs[0] if operator.inputs else None
    if last not in _PICKS or not isinstance(first, str):
        return
    rank, (at, usual) = len(walk.shape(first) or ()), _PICKS[last]
    constants = [operand.value for operand in operator.inputs if isinstance(operand, Literal)]
    dim = operator.attributes.get("dim", constants[at] if len(constants) > at else usual)
    own = walk.facts.derived("batch axes", lambda: batch_axes(walk.plan)) | SEQUENCE_AXES
    for axis in walk.axes:
        on = walk.value(first).on.get(axis)
        if not isinstance(on, Shard) or not rank or axis in own:
            continue
        along = dim is None or (isinstance(dim, int) and not isinstance(dim, bool) and dim % rank == on.dim % rank)
        if along and not sent_on(walk, [name for name in operator.outputs if name], axis):
            yield "choice-over-shards", first, axis
