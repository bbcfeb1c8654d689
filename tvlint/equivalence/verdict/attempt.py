"""Decide whether a case is proved: derive both plans, compare them, and check what the derivation rests on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvlint.analyses.relations.defect import Defect, stops
from tvlint.analyses.relations.derivation.given.well_formed import first_rank
from tvlint.analyses.relations.derivation.state import Derived
from tvlint.equivalence.side_conditions.hazards_and_deadlock import check_order
from tvlint.equivalence.side_conditions.micro_batch_symmetry import check_micro_batches
from tvlint.equivalence.side_conditions.unused_declarations import check_unused
from tvlint.equivalence.verdict.assumptions import assumptions
from tvlint.equivalence.verdict.compare import compare
from tvlint.equivalence.verdict.derivation import (
    Derivation,
    NotUnderstood,
    Reference,
    derive_parallel,
    derive_reference,
)
from tvlint.equivalence.verdict.pairing import Case, Progress
from tvlint.equivalence.verdict.replica_folding import returns_declared


@dataclass(frozen=True, slots=True)
class Attempt:
    """What was found of a case before anything that keeps it from being proved is explained."""

    case: Case
    reference: Reference
    derivation: Derivation
    violations: tuple[Defect, ...]
    """The side conditions that do not hold, on all ranks; the plan's own statements only where the values agree."""
    assumptions: tuple[str, ...]
    values_agree: bool
    """Whether the plan runs to its end as it was derived, and leaves and returns what the reference does."""
    is_proved: bool


def attempt_proof(case: Case, progress: Progress) -> Attempt | NotUnderstood:
    """Return whether the case is proved, with the derivations and all that the proof rests on.

    A case is proved if its values agree, no side condition is violated, no normal form has a value where the plan has none
    and, of one replica, the plan declares the slices that replicas return.
    """
    progress("deriving the reference", 0.0)
    reference = derive_reference(case)
    if isinstance(reference, NotUnderstood):
        return reference
    progress("deriving the parallel plan", 0.2)
    derivation = derive_parallel(case, reference)
    derived, comparison = derivation.derived, compare(case, reference, derivation)
    violations = check_side_conditions(case)
    agree = has_run(derived) and not any(map(stops, derived.defects)) and not comparison.differences
    if agree and not violations:
        violations = (*derived.contradicted, *check_unused(case.written, case.reference))
    is_proved = agree and not violations and not derivation.world.terms.restricted
    if is_proved and case.folded_axis:
        is_proved = returns_declared(case, derivation.world, derived)
    rests_on = assumptions(case, reference, derivation, comparison.assumptions)
    return Attempt(case, reference, derivation, violations, rests_on, agree, is_proved)


def has_run(derived: Derived) -> bool:
    """Return whether every rank has run to its end, and would with any values."""
    return derived.finished and not derived.fatal


def _of_reference(case: Case) -> Iterator[Defect]:
    """Yield what keeps one micro-batch of the reference from standing for all; it refutes nothing of the plan."""
    plan, batches = case.reference, case.reference_micro_batches
    for defect in (*check_micro_batches(plan, batches), *check_order(plan)) if batches > 1 else ():
        text = defect.message.replace("{ranks}", "the reference")
        yield Defect(defect.name, False, f"in the reference: {text}", first_rank(case.parallel), source=defect.source)


def check_side_conditions(case: Case) -> tuple[Defect, ...]:
    """Return what keeps one micro-batch from standing for all; where nothing refutes that, also what depends on the order."""
    found = (*_of_reference(case), *check_micro_batches(case.parallel, case.micro_batches))
    return found if any(defect.refutes for defect in found) else (*found, *check_order(case.written))
