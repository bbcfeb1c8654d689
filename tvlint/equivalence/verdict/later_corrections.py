"""Find later operators that may correct what looks wrong by its structure.

A softmax, a norm or a variance over a part of a dimension is a mistake by its structure where the plan goes on as the reference
does. It is none where the plan computes more than the reference: attention that is written out in blocks rescales each with the
sum of its own rows, and a norm is that of the norms of the parts. Powers may be taken of scores from which any statistic is
subtracted that all ranks have in common, since the sum of the powers takes it away again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tvlint.analyses.relations.defect import Defect
from tvlint.analyses.relations.derivation.order_insensitive import Readers, readers_of
from tvlint.analyses.relations.derivation.state import Derived
from tvlint.ir.operators import Backward, Collective, Communicate, Compute, Operator
from tvlint.ir.plan import Phase, Plan
from tvlint.ops.spec import Family, Trait
from tvlint.ops.table import has_trait, spec_of

_STATISTICS = ("wrong-reduce-op", "missing-allreduce")
"""What is told of a statistic that is put together over ranks as the reference does not, and of powers of what it shifts."""

_VIEWS = (Trait.VIEW, Trait.BROADCAST)


def put_right_later(plan: Plan, reference: Plan, derived: Derived) -> list[Defect]:
    """Return what is told of split dimensions that a right plan may have as well."""
    pieces = [
        defect
        for defect in derived.defects
        if defect.refutes
        and defect.name == "mismatched-shards"
        and isinstance(defect.place, Compute)
        and _has_pieces(plan, defect.rank)
    ]
    pieces = pieces if pieces and _cuts(reference) else []
    found = [defect for defect in derived.defects if defect.refutes and defect.name in ("split-dimension", *_STATISTICS)]
    if not found:
        return pieces
    readers, known = readers_of(plan), _computed(reference, reference.programs[0].ranks[0])
    split = [defect for defect in found if defect.name not in _STATISTICS]
    more = {rank for rank in {defect.rank for defect in split} if _computed(plan, rank) - known}
    shifts = [defect for defect in found if defect.name in _STATISTICS and _shifts(plan, readers, defect)]
    return [
        *pieces,
        *shifts,
        *(defect for defect in split if derived.foreign or defect.rank in more or _read_again(readers, defect)),
    ]


def _has_pieces(plan: Plan, rank: int) -> bool:
    """Return whether the rank uses several pieces of one value as tensors of their own, which a right plan joins slice by
    slice.
    """
    regions: dict[str, set[object]] = {}
    for program in plan.programs:
        segments = {step.segment for step in program.steps} if rank in program.ranks else set()
        for operator in (
            operator for name in segments for operator in plan.segments[name].operators if isinstance(operator, Compute)
        ):
            for tensor in (plan.tensors[name] for name in operator.inputs if isinstance(name, str) and name in plan.tensors):
                if tensor.logical and tensor.region is not None:
                    regions.setdefault(tensor.logical, set()).add(tensor.region)
    return any(len(found) > 1 for found in regions.values())


def _cuts(plan: Plan) -> bool:
    """Return whether the plan takes slices of what it computes."""
    computes = (
        operator for segment in plan.segments.values() for operator in segment.operators if isinstance(operator, Compute)
    )
    return any(has_trait(compute.op, Trait.RANGES) for compute in computes)


def _read_again(readers: Readers, defect: Defect) -> bool:
    """Return whether the operand of what is rescaled with a sum of its powers is read by something else as well."""
    if not isinstance(defect.place, Compute | Backward):
        return False
    forward = defect.place.forward if isinstance(defect.place, Backward) else defect.place
    spec = spec_of(forward.op)
    again = [reader for name in forward.inputs if isinstance(name, str) for reader in readers.get(name, ())]
    return (
        spec is not None
        and Trait.SOFTMAX in spec.traits
        and any(isinstance(operator, Compute) and operator != forward for operator in again)
    )


def _computed(plan: Plan, rank: int) -> Counter[str]:
    """Return how often the rank runs each operator that computes something, forwards and for one micro-batch."""
    found: Counter[str] = Counter()
    for program in plan.programs:
        if rank not in program.ranks:
            continue
        first = min((step.micro_batch for step in program.steps if step.micro_batch >= 0), default=-1)
        for step in program.steps:
            segment = plan.segments[step.segment]
            if segment.phase is Phase.FORWARD and step.micro_batch in (-1, first):
                found.update(operator.op for operator in segment.operators if isinstance(operator, Compute))
    total: Counter[str] = Counter()
    for op, times in found.items():
        spec = spec_of(op)
        if spec is None or spec.family is Family.INDEXED:
            total[op if spec is None else spec.name] += times
    return total


def _shifts(plan: Plan, readers: Readers, defect: Defect) -> bool:
    """Return whether it is told of a statistic, alike on all ranks, that shifts scores whose powers are summed afterwards."""
    place = defect.place
    if isinstance(place, Communicate):
        return place.kind is Collective.ALL_REDUCE and all(_is_shift(readers, name) for name in place.outputs)
    if not isinstance(place, Compute) or defect.actual or not _is(place, "exp"):
        return False
    common = [operator for part in plan.segments.values() for operator in part.operators if isinstance(operator, Communicate)]
    totals = {name for operator in common if operator.kind is Collective.ALL_REDUCE for name in operator.outputs}
    return any(place in after for name in totals for after in _shifted(readers, name))


def _is_shift(readers: Readers, name: str) -> bool:
    """Return whether the value is only subtracted from scores of which powers are taken and summed."""
    found = _shifted(readers, name)
    return bool(found) and all(
        any(_is(operator, "exp") and isinstance(operator, Compute) and _summed(readers, operator) for operator in after)
        for after in found
    )


def _shifted(readers: Readers, name: str) -> list[Sequence[Operator | None]]:
    """Return who reads each difference from which the value is subtracted; no one of what else is made of it."""
    found: list[Sequence[Operator | None]] = []
    names, seen = [name], {name}
    while names:
        shift = names.pop()
        for reader in readers.get(shift, ()):
            if (
                isinstance(reader, Compute)
                and _is(reader, "sub")
                and tuple(reader.inputs[1:2]) == (shift,)
                and reader.inputs[0] != shift
            ):
                found.append(readers.get(reader.outputs[0], ()))
            elif isinstance(reader, Compute) and has_trait(reader.op, *_VIEWS) and reader.outputs:
                names += [reader.outputs[0]] if reader.outputs[0] not in seen else []
                seen.add(reader.outputs[0])
            else:
                found.append(())
    return found


def _summed(readers: Readers, power: Compute) -> bool:
    return any(_is(reader, "sum") for reader in readers.get(power.outputs[0], ()))


def _is(operator: Operator | None, *names: str) -> bool:
    spec = spec_of(operator.op) if isinstance(operator, Compute) else None
    return spec is not None and spec.name in names
