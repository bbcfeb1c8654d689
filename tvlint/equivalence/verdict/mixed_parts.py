"""Where a plan that returns other numbers first takes a part of a sum together with what is complete.

Sums are linear, so that such a value is followed as both, and may still be put right. Where a rank returns one, nothing has put
it right: the place that is to be changed is the operator that takes the part, and not the last one that passes it on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.localisation.localise import name_of
from tvlint.analyses.relations.derivation.state import Derived, Slot
from tvlint.analyses.relations.terms.terms import Telling
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.equivalence.verdict.derivation import NotUnderstood, derive_parallel, derive_reference
from tvlint.equivalence.verdict.pairing import Case
from tvlint.equivalence.verdict.replica_folding import fold_replicas
from tvlint.ir.operators import Compute
from tvlint.ir.plan import Plan, Program


@dataclass(frozen=True, slots=True)
class Mixing:
    """`operator` of a segment adds `part`, which is a part of a sum, to what is complete."""

    part: str
    operator: Compute
    segment: str

    def describe(self) -> str:
        """Return what the operator does, in words."""
        return f"{name_of(self.operator)} adds the part of a sum that `{self.part}` is to what is complete"


def taken_with_what_is_complete(case: Case) -> Mixing | None:
    """Return the first operator of a rank that adds a part of a sum to what is complete; None where no rank returns what comes
    of that.
    """
    arithmetic = replace(fold_replicas(case) or case, telling=Telling.ARITHMETIC)
    reference = derive_reference(arithmetic)
    if isinstance(reference, NotUnderstood):
        return None
    return mixing_operator(arithmetic.parallel, derive_parallel(arithmetic, reference).derived)


def mixing_operator(plan: Plan, derived: Derived) -> Mixing | None:
    """Return the same of what was derived."""
    for program in plan.programs:
        for rank in program.ranks[:1]:
            known = derived.environments.get(rank, {})
            if any(_is_mixed(known.get(name)) for name in plan.outputs):
                return next(_mixing(plan, program, derived, rank), None)
    return None


def placed_where_mixed(plan: Plan, derived: Derived, differences: Sequence[Defect]) -> list[Defect]:
    """Return the differences, with gradients that add some addends more often than others at the operator of `mixing_operator`.

    The gradients of what it adds are those of the part and of what is complete, which ranks count differently.
    """
    unequal = any(difference.name == "unequal-addends" for difference in differences)
    found = mixing_operator(plan, derived) if unequal else None
    if found is None:
        return list(differences)
    text = f"the gradient of {{subject}} on {{ranks}} adds some of its addends more often than others: {found.describe()}"
    return [
        at(found.operator, found.segment, replace(each, message=text, cause=(found.operator.source, found.part)))
        if each.name == "unequal-addends"
        else each
        for each in differences
    ]


def _mixing(plan: Plan, program: Program, derived: Derived, rank: int) -> Iterator[Mixing]:
    """Yield the operators that make such a value of values that are none."""
    for segment, _, operator in plan.run_by(program):
        known = derived.locals.get((rank, segment)) or derived.environments.get(rank, {})
        if not isinstance(operator, Compute) or not any(_is_mixed(known.get(name)) for name in operator.outputs):
            continue
        names = operator.tensor_operands
        parts = [name for name in names if isinstance(value := known.get(name), Value) and value.leaves]
        if parts and not any(_is_mixed(known.get(name)) for name in names):
            yield Mixing(parts[0], operator, segment)


def _is_mixed(value: Slot | None) -> bool:
    """Return whether a value is a sum of something complete and of a part of a sum."""
    return isinstance(value, Value) and len({bool(leaf.pending) for leaf in value.leaves}) == 2
