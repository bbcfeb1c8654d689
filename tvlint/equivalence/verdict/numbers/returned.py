"""Compare what all ranks of a plan return with what the reference returns."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from math import prod

from tvlint.equivalence.verdict.numbers.closeness import is_close
from tvlint.equivalence.verdict.pairing import Case, first_rank
from tvlint.ir.placement import Partial
from tvlint.ir.plan import Plan, Tensor
from tvlint.ops.field import Array
from tvlint.replay.run import Result


def is_same_returned(case: Case, alone: Result, many: Result) -> bool:
    """Return whether all ranks return what the reference does: the value, or their micro-batches' and replicas' parts of it.

    A plan that says of nothing that it returns it has nothing to compare.
    """
    parallel, count = case.parallel, case.micro_batches * case.parallel.replication.count
    if not parallel.outputs:
        return True
    right = _totals(case.reference, alone, first_rank(case.reference))
    shares = [Fraction(*pair) for pair in product((1, count), (1, case.reference_micro_batches))]
    ranks = {rank for rank, _, _ in many.returned}
    for rank in ranks:
        found = _totals(parallel, many, rank)
        if len(found) != len(right):
            return False
        for array, value in zip(found, right, strict=True):
            if array is None or value is None or array.shape != value.shape:
                return False
            if not any(is_close(array / float(share), value, float(abs(value).max(initial=0))) for share in shares):
                return False
    return bool(ranks)


def _totals(plan: Plan, many: Result, rank: int) -> list[Array | None]:
    """Return what a rank returns, in order, over all micro-batches, each of which may have a name of its own for it."""
    names: dict[int, list[str]] = {}
    for name in plan.outputs:
        for returned, micro_batch, other in many.returned:
            if (returned, other) == (rank, name):
                names.setdefault(micro_batch, []).append(name)
    if len({len(returned) for returned in names.values()}) != 1:
        return []
    return [_total(plan, many, rank, dict(zip(names, column, strict=True))) for column in zip(*names.values(), strict=True)]


def _total(plan: Plan, many: Result, rank: int, names: Mapping[int, str]) -> Array | None:
    """Return what a rank returns over all micro-batches and replicas, and over the axes on which the plan says it is a part.

    `names` are those of the value by micro-batch.
    """
    total: Array | None = None
    for micro_batch, name in names.items():
        tensor: Tensor | None = plan.tensors.get(name)
        placements = (tensor.placements if tensor is not None else None) or {}
        partial = {axis: placement for axis, placement in placements.items() if isinstance(placement, Partial)}
        if {placement.reduce for placement in partial.values()} - {"sum", "avg"}:
            return None
        folded = (plan.replication.axis,) if plan.replication.count > 1 else ()
        members = plan.mesh.along(rank, tuple(dict.fromkeys((*partial, *folded))))
        found = [many.returned[key] for member in members if (key := (member, micro_batch, name)) in many.returned]
        if not found or len({value.shape for value in found}) > 1:
            return None
        averaged = prod(plan.mesh.axis_size(axis) for axis, placement in partial.items() if placement.reduce == "avg")
        part = sum(found[1:], start=found[0]) / averaged
        if total is not None and total.shape != part.shape:
            return None
        total = part if total is None else total + part
    return total
