"""Tell what is wrong with a plan whatever its reference is from what may be meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile

from tvlint.analyses.relations.derivation.state import Derived, Machine, RankState, Scaling
from tvlint.analyses.relations.terms.loss_identities import is_gradient, multiplied
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import Collective, Communicate, Compute, Operator
from tvlint.ir.plan import Phase
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_kind, has_trait

_FARTHEST = 64
"""Among so many values before a multiple its cause is looked for."""


def is_sure(machine: Machine, rank: RankState, operator: Operator, mismatch: Mismatch) -> bool:
    """Return whether a defect that would refute a pair is one of the plan alone.

    What is done to a maximum, a range or a norm of parts may be put right later; norms of weights and gradients may count what
    ranks share as often as they share it.
    """
    if mismatch.name == "part-used-as-complete":
        return False
    if mismatch.name == "scaled-value":
        return _is_activation(machine, rank, operator, mismatch)
    if mismatch.name == "split-dimension":
        return isinstance(operator, Compute) and _needs_all(operator, mismatch)
    return True


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
    return value is not None and _depends_on_inputs(machine.world.terms, value.term)


def note_scaling(machine: Machine, operator: Communicate, given: Mapping[int, Value], results: Mapping[int, Value]) -> None:
    """Note a sum or mean over ranks that makes a multiple of a value; return one of a gradient that is none to be averaged."""
    value = next(iter(results.values()), None)
    if value is None or value.leaves or value.fold is not None or value.coefficient in (0, 1):
        return
    if operator.kind not in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE):
        return
    equal = all(not value.leaves and value.coefficient == 1 for value in given.values())
    kind, averages = operator.kind.value, operator.reduce == "avg"
    if equal and not averages:
        rule = "reduce-scatter-of-replicated" if operator.kind is Collective.REDUCE_SCATTER else "doubled-allreduce"
        text = f"`{kind}` on {{ranks}} adds {value.coefficient} copies of a complete value, which gives a multiple of it"
    elif not equal:
        how = "averages partial sums" if averages else "adds what is to be averaged"
        rule, text = "wrong-reduce-op", f"`{kind}` on {{ranks}} {how}, which gives {value.coefficient} times the value"
    else:
        return
    machine.derived.scaling.setdefault((value.term, value.coefficient), Scaling(operator, rule, text))


def scaling_of(machine: Machine, rank: RankState, operator: Operator, mismatch: Mismatch) -> Scaling | None:
    """Return the collective that made the multiple that the operator takes for the value; None where that is not known."""
    value = _operand(rank, operator, mismatch) if mismatch.name == "scaled-value" else None
    return None if value is None else _made_by(machine.derived, value, _nearest(machine.world.terms, value.term))


def lasting_scaling(derived: Derived, terms: Terms, value: Value) -> Scaling | None:
    """Return the collective that made a value of the forward pass a multiple, where no constant is applied to it after that.

    It is the operator that makes the value, `maker`, if that is one.
    """
    if value.leaves or value.fold is not None or value.coefficient in (0, 1) or not _depends_on_inputs(terms, value.term):
        return None
    return _made_by(derived, value, takewhile(lambda term: multiplied(terms, term) is None, _nearest(terms, value.term)))


def _made_by(derived: Derived, value: Value, terms: Iterable[int]) -> Scaling | None:
    return next((found for term in terms if (found := derived.scaling.get((term, value.coefficient))) is not None), None)


def _nearest(terms: Terms, term: int) -> Iterator[int]:
    """Yield the value and those that it is computed from, the nearest first."""
    waiting = [term]
    for at in waiting:
        yield at
        if len(waiting) < _FARTHEST:
            waiting.extend(operand for operand in terms.operands[at] if operand not in waiting)


def _operand(rank: RankState, operator: Operator, mismatch: Mismatch) -> Value | None:
    """Return the relation of the operand that is at fault, where there is one."""
    names = [name for name in operator.inputs if isinstance(name, str)] if isinstance(operator, Compute) else []
    known = mismatch.operand is not None and mismatch.operand < len(names)
    return rank.local.get(names[mismatch.operand]) if known and mismatch.operand is not None else None


def _depends_on_inputs(terms: Terms, term: int) -> bool:
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
