"""Compare what all ranks of a plan return with what the reference returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import prod

from tvlint.analyses.relations.derivation.given.well_formed import first_rank
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.equivalence.verdict.numbers.closeness import is_close
from tvlint.equivalence.verdict.numbers.outcome import Difference
from tvlint.equivalence.verdict.numbers.run import held_places
from tvlint.equivalence.verdict.pairing import Case
from tvlint.ir.placement import Partial, Shard
from tvlint.ir.plan import Plan, Role, Tensor
from tvlint.ops.field import Array
from tvlint.replay.run import Result

_CERTAIN = 1e-6
"""What is returned is off by more than this part of the greatest element where it is another value, whatever rounding does."""


def is_same_returned(case: Case, alone: Result, many: Result) -> bool:
    """Return whether all ranks return what the reference does: the value or the slice that the plan declares, or their
    micro-batches' and replicas' parts of it.

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
        for (name, array), (_, value) in zip(found, right, strict=True):
            piece = None if value is None else _piece(parallel, name, rank, value)
            if array is None or value is None or piece is None or array.shape != piece.shape:
                return False
            if not any(is_close(array / float(share), piece, float(abs(value).max(initial=0))) for share in shares):
                return False
    return bool(ranks)


def other_returned(case: Case, alone: Result, many: Result) -> Difference | None:
    """Return where ranks return another value than the reference, of plans that train nothing and return all that they return
    as they declare it, in one run; None where they do not, or nothing says what they return.

    What all ranks return alike, of the shape of the whole, is no piece of it, and no part of a sum but for a multiple.
    """
    parallel, reference, ranks = case.parallel, case.reference, range(case.parallel.mesh.size)
    trained = any(tensor.role is Role.WEIGHT for plan in (parallel, reference) for tensor in plan.tensors.values())
    runs = case.micro_batches * parallel.replication.count * case.reference_micro_batches
    tensors = [parallel.tensors.get(name) for name in parallel.outputs]
    single = parallel.mesh.size == 1
    declared = {tensor.name for tensor in tensors if tensor is not None and (single or tensor.placements is not None)}
    right = _totals(reference, alone, first_rank(reference))
    if trained or runs != 1 or None in tensors or any(len(_totals(parallel, many, rank)) != len(right) for rank in ranks):
        return None
    errors: dict[str, dict[int, float]] = {}
    scales: dict[str, float] = {}
    alike: dict[str, Array] = {}
    for rank in ranks:
        for (name, array), (_, value) in zip(_totals(parallel, many, rank), right, strict=True):
            piece = None if value is None else _piece(parallel, name, rank, value)
            if array is None or value is None or piece is None or array.shape != piece.shape:
                return None
            if name not in declared and not _is_whole(alike.setdefault(name, array), array, value):
                return None
            scales[name] = float(abs(value).max(initial=0))
            if not is_close(array, piece, scales[name]):
                errors.setdefault(name, {})[rank] = float(abs(array - piece).max())
    if not errors:
        return None
    name = max(errors, key=lambda of: max(errors[of].values()) / max(scales[of], _CERTAIN))
    error = max(errors[name].values())
    if not error > _CERTAIN * max(scales[name], _CERTAIN):
        return None
    return Difference(name, tuple(sorted(errors[name])), error, scales[name], None, of_output=True)


def _is_whole(one: Array, other: Array, value: Array) -> bool:
    """Return whether ranks return the same, which is no multiple of a value but for that itself."""
    scale, norm = float(abs(value).max(initial=0)), float((value * value).sum())
    factor = float((other * value).sum()) / norm if norm else 0.0
    is_multiple = is_close(other, factor * value, scale) and not is_close(other, value, scale)
    return is_close(one, other, scale) and not is_multiple


def _piece(plan: Plan, name: str, rank: int, value: Array) -> Array | None:
    """Return what a rank holds of a returned value, as the plan declares it; None where that is no piece of it."""
    tensor = plan.tensors.get(name)
    placements = (tensor.placements if tensor is not None else None) or {}
    shards = {axis: placement for axis, placement in placements.items() if isinstance(placement, Shard)}
    if tensor is None or not shards:
        return value
    first = rank % plan.replication.stride if plan.replication.count > 1 else rank
    try:
        found: Array = value[held_places(plan, replace(tensor, placements=shards), first)]
    except (Mismatch, IndexError):
        return None
    return found


def _totals(plan: Plan, many: Result, rank: int) -> list[tuple[str, Array | None]]:
    """Return what a rank returns, in order, over all micro-batches, each of which may have a name of its own for it.

    The name is that of the first micro-batch.
    """
    names: dict[int, list[str]] = {}
    for name in plan.outputs:
        for returned, micro_batch, other in many.returned:
            if (returned, other) == (rank, name):
                names.setdefault(micro_batch, []).append(name)
    if len({len(returned) for returned in names.values()}) != 1:
        return []
    columns = zip(*names.values(), strict=True)
    return [(column[0], _total(plan, many, rank, dict(zip(names, column, strict=True)))) for column in columns]


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
