"""Tell what is wrong with a plan whatever its reference is from what may be meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import takewhile

from tvlint.analyses.dataflow.gradient_owners import owners
from tvlint.analyses.relations.derivation.state import Derived, Joined, Machine, RankState, Scaling, Slot
from tvlint.analyses.relations.terms.loss_identities import is_gradient, multiplied
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer.context import Mismatch, is_zero, is_zeros
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import SUMS, Collective, Communicate, Compute, Operator, Receive, Send
from tvlint.ir.plan import Phase, Plan
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_kind, has_trait

_FARTHEST = 64
"""Among so many values before a multiple its cause is looked for."""


def is_sure(machine: Machine, rank: RankState, operator: Operator, mismatch: Mismatch) -> bool:
    """Return whether a defect that would refute a pair is one of the plan alone.

    What is done to a range or a norm of parts may be put right later, a rank may compare its own maximum with that of all, and
    what travels around a ring is put together block by block; a scale of its own shard is right where the rank takes it back;
    norms of weights and gradients may count what ranks share as often as they share it.
    """
    if mismatch.name == "part-used-as-complete":
        value = _operand(rank, operator, mismatch)
        greatest = value is not None and value.fold is not None and value.fold.kind == "max"
        travels = rank.segment is not None and any(isinstance(each, Send | Receive) for each in rank.segment.operators)
        compares = not isinstance(operator, Compute) or has_trait(operator.op, Trait.COMPARISON)
        return greatest and not travels and not compares and not _takes_scale_back(rank, operator, mismatch)
    if mismatch.name == "scaled-value":
        return _is_activation(machine, rank, operator, mismatch)
    if mismatch.name == "split-dimension":
        return isinstance(operator, Compute) and _needs_all(operator, mismatch)
    return True


def _takes_scale_back(rank: RankState, operator: Operator, mismatch: Mismatch) -> bool:
    """Return whether the rank both divides by the operand at fault and multiplies with it: a scale of its own shard."""
    if rank.segment is None or not isinstance(operator, Compute) or not has_trait(operator.op, Trait.SCALING):
        return False
    scale = operator.inputs[mismatch.operand or 0]
    scaled = [
        has_trait(each.op, Trait.PRODUCT)
        for each in rank.segment.operators
        if isinstance(each, Compute) and scale in each.inputs[1:] and has_trait(each.op, Trait.SCALING)
    ]
    return len(set(scaled)) > 1


def _needs_all(operator: Compute, mismatch: Mismatch) -> bool:
    """Return whether nothing puts right what the operator makes of a part of a dimension.

    A lookup in some rows is a part of one in all of them; heads of attention may be packed in the dimension of queries.
    """
    normalises = has_trait(operator.op, Trait.SOFTMAX, Trait.NORMALISATION, Trait.CLASS_LOSS)
    return normalises or (has_kind(operator.op, Trait.ATTENTION) and mismatch.operand != 0)


def _is_activation(machine: Machine, rank: RankState, operator: Operator, mismatch: Mismatch) -> bool:
    """Return whether the operand at fault is a value of the forward pass that inputs decide."""
    if rank.segment is None or rank.segment.phase is not Phase.FORWARD:
        return False
    value = _operand(rank, operator, mismatch)
    return value is not None and is_of_inputs(machine.world.terms, value.term)


def note_scaling(
    machine: Machine, operator: Communicate, given: Mapping[int, Value], results: Mapping[int, Value]
) -> Scaling | None:
    """Note a sum or mean over ranks that makes a multiple of a value; return one of a gradient that is none to be averaged."""
    value = next(iter(results.values()), None)
    if value is None or value.leaves or value.fold is not None or value.coefficient in (0, 1):
        return None
    if operator.kind not in SUMS or not machine.derived.recovered.isdisjoint(_nearest(machine.world.terms, value.term)):
        return None
    before = next(iter(given.values())).coefficient
    equal = all(not each.leaves and each.coefficient == before != 0 for each in given.values())
    if equal and machine.world.values.bare(value).coefficient == 1:
        return None
    kind, averages = operator.kind.value, operator.reduce == "avg"
    before = before or 1
    if equal and not averages:
        rule = "reduce-scatter-of-replicated" if operator.kind is Collective.REDUCE_SCATTER else "doubled-allreduce"
        copies = Fraction(value.coefficient) / before
        text = f"`{kind}` on {{ranks}} adds {copies} copies of a complete value, which gives a multiple of it"
    elif not equal:
        how = "averages partial sums" if averages else "adds what is to be averaged"
        rule, text = "wrong-reduce-op", f"`{kind}` on {{ranks}} {how}, which gives {value.coefficient} times the value"
    else:
        return None
    found = Scaling(operator, rule, text)
    machine.derived.scaling.setdefault((value.term, value.coefficient), []).append(found)
    terms = machine.world.terms
    if not is_gradient(terms, value.term) and not (equal and terms.keys[value.term][0] == "input"):
        return None
    known = machine.owners or owners(machine.plan)
    machine.owners = known
    names = (*operator.inputs, *operator.outputs)
    goes_on = any(name in known.of_data for name in names) and not any(name in known.of_weights for name in names)
    return found if equal or (averages and goes_on) else None


def scaling_of(machine: Machine, rank: RankState, operator: Operator, mismatch: Mismatch) -> Scaling | None:
    """Return the collective that made the multiple that the operator takes for the value; None where that is not known."""
    value = _operand(rank, operator, mismatch) if mismatch.name == "scaled-value" else None
    return None if value is None else _made_by(machine.derived, value, _nearest(machine.world.terms, value.term))


def is_recovered(derived: Derived, terms: Terms, value: Value) -> bool:
    """Return whether a complete value is made of what was taken for complete before, and summed all the same."""
    complete = counts_copies(value) and not any(leaf.pending for leaf in value.leaves)
    return complete and not derived.recovered.isdisjoint(_nearest(terms, value.term))


def scaling_before(
    derived: Derived, terms: Terms, value: Value, within: Callable[[int], bool] = lambda _: True
) -> Scaling | None:
    """Return the collective by which a complete sum has other multiples of some addends than of others, where one made any."""
    if not counts_copies(value) or any(leaf.pending for leaf in value.leaves):
        return None
    found = {term: scalings[0] for (term, _), scalings in derived.scaling.items()}
    return next((found[term] for term in takewhile(within, _nearest(terms, value.term)) if term in found), None)


def lasting_scaling(derived: Derived, terms: Terms, value: Value, maker: Operator | None) -> Scaling | None:
    """Return the collective that made a value of the forward pass a multiple, where no constant is applied to it after that.

    It is the operator that makes the value, `maker`, if that is one.
    """
    if value.fold is not None or value.coefficient == 0 or not is_of_inputs(terms, value.term):
        return None
    if value.leaves:
        return scaling_before(derived, terms, value, lambda term: multiplied(terms, term) is None)
    if value.coefficient == 1:
        return None
    return _made_by(derived, value, takewhile(lambda term: multiplied(terms, term) is None, _nearest(terms, value.term)), maker)


def is_mixed(value: Slot) -> bool:
    """Return whether a value is made of parts of a sum and of what lacks no parts of that."""
    pending = [leaf.pending for leaf in value.leaves] if value is not None else []
    common = frozenset.intersection(*pending) if pending else frozenset()
    return any(entries == common for entries in pending) and any(entries != common for entries in pending)


def is_other_part(one: Value, other: Value) -> bool:
    """Return whether both are parts of one sum, of other ranges."""
    here, there = ({leaf.pending for leaf in value.leaves if leaf.pending} for value in (one, other))
    return one.term == other.term and bool(there) and here.isdisjoint(there)


class Parts:
    """The parts of sums that ranks hold under one name; ranks that are left out of `ranks` need hold none."""

    def __init__(self, plan: Plan, held: Mapping[int, Slot], ranks: Container[int] | None = None) -> None:
        self._mesh, self._held = plan.mesh, held
        self._ranks = range(plan.mesh.size) if ranks is None else ranks
        self._lines: dict[tuple[str, int], tuple[dict[int, Slot], frozenset[int]]] = {}

    def is_part_over(self, rank: int, axis: str) -> bool:
        """Return whether the ranks along an axis hold the other parts of the sum that a rank holds a part of."""
        return rank in self._along(rank, axis)[1]

    def beside(self, rank: int, axis: str) -> Iterator[Slot]:
        """Yield what the other ranks along an axis hold."""
        yield from (value for other, value in self._along(rank, axis)[0].items() if other != rank)

    def _along(self, rank: int, axis: str) -> tuple[dict[int, Slot], frozenset[int]]:
        first = self._mesh.first(rank, (axis,))
        if (axis, first) not in self._lines:
            line = {other: self._held.get(other) for other in self._mesh.along(rank, (axis,)) if other in self._ranks}
            self._lines[axis, first] = line, parts_of_one_sum(line)
        return self._lines[axis, first]


def parts_of_one_sum(line: Mapping[int, Slot]) -> frozenset[int]:
    """Return the ranks that hold a part of a sum of which each of the others holds other parts (`is_other_part`)."""
    values = {rank: value for rank, value in line.items() if value is not None}
    if len(values) < max(2, len(line)) or len({value.term for value in values.values()}) > 1:
        return frozenset()
    parts = {rank: {leaf.pending for leaf in value.leaves if leaf.pending} for rank, value in values.items()}
    holders = Counter(pending for held in parts.values() for pending in held)
    whole = [rank for rank, held in parts.items() if not held]
    candidates = whole or parts
    if len(whole) > 1:
        return frozenset()
    return frozenset(rank for rank in candidates if values[rank].leaves and all(holders[each] == 1 for each in parts[rank]))


def note_joined(
    machine: Machine, rank: RankState, operator: Operator, names: Sequence[str], operands: Sequence[Slot], result: Slot
) -> None:
    """Note an operator that adds what ranks hold alike to a part of a sum."""
    if result is None or not is_mixed(result) or any(map(is_mixed, operands)):
        return
    named = [(name, value) for name, value in zip(names, operands, strict=False) if value is not None]
    counted = [(name, value) for name, value in named if not is_zero(value) and not is_zeros(machine.world.terms, value)]
    whole, term = next(((name, value.term) for name, value in reversed(counted) if not value.leaves), ("", -1))
    part = next((name for name, value in named if value.leaves), "")
    if whole and (part or len(named) > 2):
        machine.derived.joined.setdefault(result.term, Joined(operator, whole, term, part)).given[rank.number] = result


def joined_before(derived: Derived, terms: Terms, value: Value) -> tuple[int, Joined] | None:
    """Return what an operator made that added what is whole to a part of a sum, where the value is made of that."""
    return next(((term, derived.joined[term]) for term in _nearest(terms, value.term) if term in derived.joined), None)


def note_cut(machine: Machine, rank: RankState, operator: Operator, given: Iterable[Slot], made: Slot) -> None:
    """Note an operator that makes a part of a sum of one."""
    part = next((value for value in given if value is not None and value.leaves), None)
    if part is not None and made is not None and made.leaves:
        machine.derived.cut.setdefault(id(operator), (operator, {}))[1][rank.number] = part, made


def note_left(machine: Machine, operator: Communicate, given: Mapping[int, Value], results: Mapping[int, Value]) -> None:
    """Note a sum of some parts of a sum that has all along one axis, or of none, and leaves out others."""
    value = next(iter(results.values()), None)
    for leaf in value.leaves if value is not None and operator.kind in SUMS and not is_mixed(value) else ():
        for entry in leaf.pending:
            if not any(entry in other.pending for held in given.values() for other in held.leaves):
                machine.derived.left.update({(entry.origin, entry.number, rank): operator for rank in results})


def check_parts(operator: Communicate, given: Sequence[Value], replicas: int) -> None:
    """Raise Mismatch where all members of a sum, in so many replicas, hold one part of a sum, whose other parts others have."""
    copies = len(given) * replicas
    pending = {entry for leaf in given[0].leaves for entry in leaf.pending} if copies > 1 else set()
    elsewhere = any((entry.low, entry.high) != (0, entry.size) for entry in pending)
    apart = replicas > 1 and any(entry.one_replica for entry in pending)
    if elsewhere and not apart and operator.reduce in ("", "sum") and all(value is given[0] for value in given):
        text = f"sums {copies} times the same part of a sum, whose other parts no member has"
        raise Mismatch("wrong-collective-group", text, refutes=True)


def as_sum_of_shards(mismatch: Mismatch, given: Iterable[Value]) -> Mismatch:
    """Return what is wrong with a sum of different slices: of parts of a sum, it is over other ranks than hold the others."""
    if mismatch.name != "mismatched-shards":
        return mismatch
    pending = {entry for value in given for leaf in value.leaves for entry in leaf.pending}
    elsewhere = any((entry.low, entry.high) != (0, entry.size) for entry in pending)
    name = "wrong-collective-group" if elsewhere else "allreduce-of-shards"
    return Mismatch(name, mismatch.message, refutes=mismatch.refutes)


def note_summed(machine: Machine, given: Sequence[Slot], made: Iterable[Slot]) -> None:
    """Note the values that are not complete of which other parts are summed, and which sums what is `made` has no parts of."""
    left = {entry.origin for value in made if value is not None for leaf in value.leaves for entry in leaf.pending}
    apart = any(value is not given[0] for value in given)
    for value in given if apart else ():
        if value is not None and value.leaves:
            pending = {entry.origin for leaf in value.leaves for entry in leaf.pending}
            machine.derived.summed.setdefault(value.term, set()).update(pending - left)


def joined_and_summed(derived: Derived, terms: Terms) -> set[int]:
    """Return what operators made that added what is whole to a part of a sum, where something completes that sum later."""
    joined: dict[int, set[int]] = {}
    for term, one in derived.joined.items():
        for entry in (entry for value in one.given.values() for leaf in value.leaves for entry in leaf.pending):
            joined.setdefault(entry.origin, set()).add(term)
    completed: dict[int, list[int]] = {}
    for term, origins in derived.summed.items():
        for origin in origins & joined.keys():
            completed.setdefault(origin, []).append(term)
    found = set[int]()
    for origin, waiting in completed.items():
        seen = set(waiting)
        while waiting:
            term = waiting.pop()
            if term in joined[origin]:
                found.add(term)
                continue
            below = {operand for operand in terms.operands[term] if operand > origin} - seen
            seen |= below
            waiting += below
    return found


def counts_copies(value: Value) -> bool:
    """Return whether a sum of which no parts are missing has other multiples of some addends than of others."""
    coefficients = {leaf.coefficient for leaf in value.leaves}
    return len({leaf.pending for leaf in value.leaves}) == 1 and len(coefficients) > 1


def _made_by(derived: Derived, value: Value, terms: Iterable[int], maker: Operator | None = None) -> Scaling | None:
    found = next((scalings for term in terms if (scalings := derived.scaling.get((term, value.coefficient)))), [])
    return next((scaling for scaling in found if scaling.operator is maker), found[0] if found else None)


def _nearest(terms: Terms, term: int) -> Iterator[int]:
    """Yield the value and those that it is computed from, the nearest first."""
    waiting = [term]
    for at in waiting:
        yield at
        if len(waiting) < _FARTHEST:
            waiting.extend(operand for operand in terms.operands[at] if operand not in waiting)


def _operand(rank: RankState, operator: Operator, mismatch: Mismatch) -> Value | None:
    """Return the relation of the operand that is at fault, where there is one."""
    names = operator.tensor_operands if isinstance(operator, Compute) else []
    known = mismatch.operand is not None and mismatch.operand < len(names)
    return rank.local.get(names[mismatch.operand]) if known and mismatch.operand is not None else None


def is_of_inputs(terms: Terms, term: int) -> bool:
    """Return whether a value is computed from inputs, and from no gradients."""
    seen, waiting, found = {term}, [term], False
    while waiting:
        index = waiting.pop()
        if is_gradient(terms, index):
            return False
        found = found or terms.keys[index][0] == "input"
        waiting.extend(operand for operand in terms.operands[index] if operand not in seen)
        seen.update(terms.operands[index])
    return found
