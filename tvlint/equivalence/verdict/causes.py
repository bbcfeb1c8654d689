"""Find the causes of what differs: the parallel plan derived once more, beyond its first mistake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvlint.analyses.relations.defect import Defect
from tvlint.analyses.relations.derivation.nearest_reference_value import Nearest
from tvlint.analyses.relations.derivation.state import computed_on
from tvlint.equivalence.explain.counterexample import difference
from tvlint.equivalence.side_conditions.message_matching import UNMATCHED
from tvlint.equivalence.verdict.attempt import Attempt, has_run
from tvlint.equivalence.verdict.compare import compare
from tvlint.equivalence.verdict.derivation import Derivation, derive_parallel
from tvlint.equivalence.verdict.later_corrections import put_right_later
from tvlint.equivalence.verdict.mixed_parts import placed_where_mixed
from tvlint.equivalence.verdict.replica_folding import of_first_replica
from tvlint.ir.operators import Communicate, Receive
from tvlint.ir.plan import Plan

FACTORS = ("scaled-output", "scaled-update", "wrong-gradient-scale")
"""Differences by a factor, which say nothing of a value in whose place the reference's was put."""

CONSEQUENCES = ("other-operator", "gathers-different-values", "sum-of-different-values")
"""Gaps that a mistake made elsewhere leaves behind; reported only where no mistake was found."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """The parallel plan derived with the reference's value in the place of each that the reference does not compute."""

    derivation: Derivation
    differences: tuple[Defect, ...]
    """What differs from the reference all the same."""
    is_complete: bool
    """Whether the plan with those values runs, leaves and returns what the reference does, and no side condition is violated.
    """


def recover(attempt: Attempt) -> Recovery:
    """Return the parallel plan derived beyond its mistakes, so that independent ones are all found.

    A value that the plan computes like the reference is not in the place of another.
    """
    case, reference = attempt.case, attempt.reference
    before = attempt.derivation.derived
    nearest = Nearest(reference.world.terms, lambda rank: computed_on(case.parallel, before, rank))
    derivation = derive_parallel(case, reference, nearest)
    differences = compare(case, reference, derivation).differences
    is_complete = has_run(derivation.derived) and not differences and not attempt.violations
    return Recovery(derivation, differences, is_complete)


def differing_operators(plan: Plan, derivation: Derivation, explain_all: bool) -> list[Defect]:
    """Return the operators that differ from the reference's, with a number that shows it where one is found.

    Where the rank computes what the reference computes as well, an operator is not in its place but one more. A number shows
    that the plan is wrong only if the differences explain all: with the reference's operators in their places it proves.
    """
    terms, derived = derivation.world.terms, derivation.derived
    found = []
    seen = set()
    for entry in derived.foreign:
        defect = entry.defect
        if terms.keys[entry.term][0].endswith(" gradient") and (defect.rank, entry.forward) in seen:
            continue
        seen.add((defect.rank, entry.forward))
        extra = defect.name == "other-operator" and entry.nearest in computed_on(plan, derived, defect.rank)
        shown = difference(terms, entry.nearest, entry.term) if entry.nearest is not None and not extra else ""
        if shown:
            defect = replace(defect, refutes=defect.refutes or explain_all, message=f"{defect.message}: {shown}")
        found.append(defect)
    return found


def causes(attempt: Attempt, recovery: Recovery, differing: Sequence[Defect]) -> list[Defect]:
    """Return the defects and gaps that explain why the case is not proved; `differing` are the operators that differ.

    What the final values lack is reported where nothing before it refutes, and what mistakes leave behind where nothing does.
    """
    case, derived = attempt.case, recovery.derivation.derived
    corrected = put_right_later(case.parallel, case.reference, derived)
    known = [replace(defect, refutes=False) if defect in corrected else defect for defect in derived.defects]
    violations = violations_of_one_replica(attempt)
    if any(violation.name in UNMATCHED and violation.refutes for violation in violations):
        known = [defect for defect in known if not _is_out_of_turn(defect)]
    found = [*violations, *known, *differing]
    if not any(defect.refutes for defect in found):
        replaced = any(entry.nearest is not None for entry in derived.foreign)
        differences = [difference for difference in recovery.differences if not (replaced and difference.name in FACTORS)]
        differences = placed_where_mixed(case.parallel, derived, differences)
        found += [replace(difference, refutes=difference.refutes and not corrected) for difference in differences]
    if any(defect.refutes for defect in found):
        found = [defect for defect in found if defect.refutes or defect.name not in CONSEQUENCES]
    return found


def _is_out_of_turn(defect: Defect) -> bool:
    """Return whether a call meets another one than its own, as all do behind one that the other end does not have."""
    at_collective = isinstance(defect.place, Communicate) and defect.name == "mismatched-collective"
    return at_collective or (isinstance(defect.place, Receive) and defect.name == "wrong-shape-claim")


def violations_of_one_replica(attempt: Attempt) -> list[Defect]:
    """Return the side conditions that are violated on ranks that were derived; of folded replicas others have the same."""
    case, found = attempt.case, attempt.violations
    return of_first_replica(case, found) if case.folded_axis else list(found)
