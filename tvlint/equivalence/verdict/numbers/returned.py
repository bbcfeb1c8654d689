"""Compare what all ranks of a plan return with what the reference returns."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from math import prod

from tvlint.equivalence.verdict.compare_outputs import is_declared
from tvlint.equivalence.verdict.numbers.closeness import is_close
from tvlint.equivalence.verdict.pairing import Case, first_rank
from tvlint.ir.placement import Partial
from tvlint.ir.plan import Plan, Tensor
from tvlint.ops.field import Array
from tvlint.replay.run import Result


def is_same_returned(case: Case, alone: Result, many: Result) -> bool:
    """Return whether all ranks return what the reference does: the value, or their micro-batches' and replicas' parts of it, or
    numbers of which nothing is declared and whose average it is, as the loop around the plan may take it.

    A plan that says of nothing that it returns it has nothing to compare.
    """
    parallel, count = case.parallel, case.micro_batches * case.parallel.replication.count
    if not parallel.outputs:
        return True
    right = _totals(case.reference, alone, first_rank(case.reference))
    shares = [Fraction(*pair) for pair in product((1, count), (1, case.reference_micro_batches))]
    found = [_totals(parallel, many, rank) for rank in sorted({rank for rank, _, _ in many.returned})]
    if any(len(totals) != len(right) for totals in found):
        return False
    open_ = not any(is_declared(parallel, name) for name in parallel.outputs)
    for arrays, value in zip(zip(*found, strict=True), right, strict=True):
        known = [array for array in arrays if array is not None and value is not None and array.shape == value.shape]
        if value is None or len(known) < len(found):
            return False
        ways = [known, [sum(known[1:], start=known[0]) / len(known)]] if open_ and value.size == 1 else [known]
        size = float(abs(value).max(initial=0))
        if not any(
            all(any(is_close(array / float(share), value, size) for share in shares) for array in arrays) for arrays in ways
        ):
            return False
    return bool(found)


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
