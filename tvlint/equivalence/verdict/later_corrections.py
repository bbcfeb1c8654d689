"""Find later operators that may correct what looks wrong by its structure.

A softmax, a norm or a variance over a part of a dimension is a mistake by its structure where the plan goes on as the reference
does. It is none where the plan computes more than the reference: attention that is written out in blocks rescales each with the
sum of its own rows, and a norm is that of the norms of the parts. Powers may be taken of scores from which any statistic is
subtracted that all ranks have in common, since the sum of the powers takes it away again. The root of a part is none of the
whole, and its square is the part again; so is the power of a logarithm. A function of which it is unknown what it computes may
undo anything, or be linear: what is wrong shows only where it comes to gradients or returned values without passing one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tvlint.analyses.dataflow.def_use import overwritten, uses, writes
from tvlint.analyses.gradients.accumulators import accumulators
from tvlint.analyses.relations.defect import Defect, Sum
from tvlint.analyses.relations.derivation.operators.order_insensitive import Readers, readers_of
from tvlint.analyses.relations.derivation.state import Derived
from tvlint.analyses.relations.grounds import REFUTING, Ground
from tvlint.ir.operators import (
    NOT_UNDERSTOOD,
    SUMS,
    Backward,
    Collective,
    Communicate,
    Compute,
    Literal,
    Operator,
    Receive,
    Send,
)
from tvlint.ir.plan import Phase, Plan, Role
from tvlint.ops.annotations.declared import PREFIX
from tvlint.ops.spec import Call, Family, MisfitError, Trait, UnsupportedError
from tvlint.ops.table import has_trait, is_nonlinear, spec_of

_STATISTICS = ("wrong-reduce-op", "missing-allreduce")
"""The reasons of a statistic that is put together over ranks as the reference does not, and of powers of what it shifts."""

_VIEWS = (Trait.VIEW, Trait.BROADCAST)

_SENT = ""
"""All that any rank sends, in the place of a name, which none is."""


def put_right_later(plan: Plan, reference: Plan, derived: Derived) -> list[Defect]:
    """Return what is reported of split dimensions that a right plan may have as well."""
    pieces = [
        defect
        for defect in derived.defects
        if defect.refutes
        and defect.name == "mismatched-shards"
        and isinstance(defect.place, Compute)
        and _has_pieces(plan, defect.rank)
    ]
    pieces = pieces if pieces and _cuts(reference) else []
    readers = readers_of(plan)
    pieces += _behind_functions(plan, derived)
    pieces += [defect for defect in derived.defects if defect.refutes and _is_undone(readers, defect)]
    found = [defect for defect in derived.defects if defect.refutes and defect.name in ("split-dimension", *_STATISTICS)]
    if not found:
        return pieces
    known = _computed(reference, reference.programs[0].ranks[0])
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
    for operator in (operator for operator in plan.run_on(rank) if isinstance(operator, Compute)):
        for tensor in (plan.tensors[name] for name in operator.tensor_operands if name in plan.tensors):
            if tensor.logical and tensor.region is not None:
                regions.setdefault(tensor.logical, set()).add(tensor.region)
    return any(len(found) > 1 for found in regions.values())


def _cuts(plan: Plan) -> bool:
    """Return whether the plan takes slices of what it computes."""
    computes = plan.operators_of(Compute)
    return any(has_trait(compute.op, Trait.RANGES) for compute in computes)


def _read_again(readers: Readers, defect: Defect) -> bool:
    """Return whether the operand of what is rescaled with a sum of its powers is read by something else as well."""
    if not isinstance(defect.place, Compute | Backward):
        return False
    forward = defect.place.forward if isinstance(defect.place, Backward) else defect.place
    spec = spec_of(forward.op)
    again = [reader for name in forward.tensor_operands for reader in readers.get(name, ())]
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
    """Return whether it is of a statistic, alike on all ranks, that shifts scores whose powers are summed afterwards."""
    place = defect.place
    if isinstance(place, Communicate):
        return place.kind is Collective.ALL_REDUCE and all(_is_shift(readers, name) for name in place.outputs)
    if not isinstance(place, Compute) or defect.actual or not _is(place, "exp"):
        return False
    common = [*plan.operators_of(Communicate)]
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


_RISE = (Trait.RISING, Trait.PEAK, Trait.JOIN)
_COPIES = (Trait.VIEW, Trait.BROADCAST, Trait.JOIN, Trait.CONVERSION)


def _is_undone(readers: Readers, defect: Defect) -> bool:
    """Return whether what an operator makes of a part comes to one that undoes it, at most copied or moved before.

    What is added up before is not what was made of any part. A product undoes a root where it is that of one value with itself.
    What rises with a maximum of some makes the maximum of all in one over the ranks.
    """
    spec = spec_of(defect.place.op) if isinstance(defect.place, Compute) else None
    if spec is None or defect.place is None:
        return False
    rises = defect.name == "part-used-as-complete" and bool(spec.traits.intersection(_RISE))
    inverse = spec.undone_by if defect.name in ("split-dimension", *_STATISTICS) else frozenset[str]()
    waiting = list(writes(defect.place)) if inverse or rises else []
    seen, passed = set(waiting), (*_COPIES, *_RISE) if rises else _COPIES
    while waiting:
        for reader in readers.get(waiting.pop(), ()):
            if _undoes(reader, inverse, seen) or (rises and isinstance(reader, Communicate) and reader.reduce == "max"):
                return True
            moves = isinstance(reader, Send) or (isinstance(reader, Communicate) and (rises or reader.kind not in SUMS))
            if reader is not None and (moves or (isinstance(reader, Compute) and has_trait(reader.op, *passed))):
                made = [name for name in writes(reader) if name not in seen]
                waiting += made
                seen.update(made)
    return False


def _undoes(reader: Operator | None, inverse: frozenset[str], seen: set[str]) -> bool:
    if not isinstance(reader, Compute) or not _is(reader, *inverse):
        return False
    names = reader.tensor_operands
    return not _is(reader, "mul") or (len(names) == 2 and seen.issuperset(names))


def _behind_functions(plan: Plan, derived: Derived) -> list[Defect]:
    """Return what is said of values that come to gradients and returned values through unknown functions alone."""
    known = [
        defect
        for defect in derived.defects
        if defect.refutes and REFUTING.get(defect.name) is Ground.DIFFERS and isinstance(defect.place, Compute | Communicate)
    ]
    flow = _Flow(plan) if known else None
    if flow is None or not flow.unknown:
        return []
    return [defect for defect in known if not any(map(flow.shows, flow.takers(defect)))]


class _Flow:
    """The operators that read each tensor, which of them are unknown, and which tensors show in what is compared."""

    def __init__(self, plan: Plan) -> None:
        operators = list(plan.operators())
        self.unknown = {id(operator) for operator in operators if not _is_understood(plan, operator)}
        self._readers: dict[str, list[Operator]] = {}
        for operator in operators:
            for name in uses(operator):
                self._readers.setdefault(name, []).append(operator)
        self._showing = self._names_that_show(plan, operators)

    def takers(self, defect: Defect) -> list[Operator]:
        """Return the operators that take a part for a whole: the reported one, and others that are not linear in a copy."""
        found = [] if defect.place is None else [defect.place]
        names = [defect.subject] if isinstance(defect.fix, Sum) else []
        for name in names:
            for reader in self._readers.get(name, ()):
                spec = spec_of(reader.op) if isinstance(reader, Compute) else None
                if spec is not None and (spec.family is Family.IDENTITY or spec.traits.intersection(_VIEWS)):
                    names += [copy for copy in writes(reader) if copy not in names]
                elif isinstance(reader, Compute) and is_nonlinear(reader.op):
                    found.append(reader)
        return found

    def shows(self, place: Operator) -> bool:
        """Return whether what an operator makes comes to what is compared with the reference through known functions."""
        return not self._showing.isdisjoint(self._made_by(place))

    def _made_by(self, operator: Operator) -> list[str]:
        """Return what a known operator makes; all that is sent may come to all that is received."""
        if id(operator) in self.unknown:
            return []
        return [*writes(operator), *overwritten(operator), *([_SENT] if isinstance(operator, Send) else ())]

    def _names_that_show(self, plan: Plan, operators: Sequence[Operator]) -> set[str]:
        """Return the tensors that come to gradients, weights, states or returned values through known functions."""
        before: dict[str, list[str]] = {}
        for operator in operators:
            if isinstance(operator, Receive):
                before.setdefault(operator.tensor, []).append(_SENT)
        for name, readers in self._readers.items():
            for reader in [reader for reader in readers if name in overwritten(reader)] or readers:
                for made in self._made_by(reader):
                    before.setdefault(made, []).append(name)
        for step in plan.steps():
            segment = plan.segments[step.segment]
            for inner, outer in zip(segment.outputs, step.outputs or (), strict=False):
                before.setdefault(outer, []).append(inner)
            for inner, outer in zip(segment.inputs, step.inputs or (), strict=False):
                before.setdefault(inner, []).append(outer)
        lasting = {name for name, tensor in plan.tensors.items() if tensor.role in (Role.WEIGHT, Role.STATE)}
        found = {*plan.outputs, *accumulators(plan), *lasting}
        waiting = [*found]
        while waiting:
            new = {*before.get(waiting.pop(), ())} - found
            found |= new
            waiting += new
        return found


def _is_understood(plan: Plan, operator: Operator) -> bool:
    """Return whether it is known what an operator computes, and not only how it can be split."""
    if isinstance(operator, Backward):
        return _is_understood(plan, operator.forward)
    if not isinstance(operator, Compute):
        return True
    spec = spec_of(operator.op)
    if spec is None or NOT_UNDERSTOOD in operator.attributes:
        return spec is not None and spec.family is Family.INERT
    if operator.op.startswith(PREFIX) and spec.evaluate is None and spec.family is Family.INDEXED:
        return False
    given = [operand if isinstance(operand, Literal) else plan.tensors.get(operand) for operand in operator.inputs]
    if None in given or spec.family is not Family.INDEXED:
        return True
    shapes = tuple(operand if isinstance(operand, Literal) else operand.shape for operand in given if operand is not None)
    results = tuple(plan.tensors[name].shape for name in operator.outputs if name in plan.tensors)
    try:
        spec.bind(Call(operator.op, shapes, operator.attributes, results))
    except MisfitError:
        return True
    except UnsupportedError:
        return False
    return True
