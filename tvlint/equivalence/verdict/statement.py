"""State what was found of a case as a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from tvlint.analyses.relations.defect import Defect, reasons
from tvlint.analyses.relations.derivation.localisation.coverage import coverage_of
from tvlint.equivalence.explain.context_graph import scenes
from tvlint.equivalence.verdict.attempt import Attempt
from tvlint.equivalence.verdict.derivation import Derivation
from tvlint.equivalence.verdict.pairing import Case
from tvlint.findings import Outcome, Reason, StageCounts, Verdict
from tvlint.ir.plan import Plan


def state_gaps(parallel: Plan, reference: Plan, plan: Plan, gaps: Iterable[Defect]) -> Verdict:
    """Return the unknown verdict on a pair of which `plan` has gaps that nothing can be derived beyond."""
    return Verdict(reference.path, parallel.path, Outcome.UNKNOWN, reasons=reasons(plan, gaps))


def state_proof(attempt: Attempt) -> Verdict:
    """Return the verdict on a case that is proved, and what it rests on."""
    return _verdict(attempt, attempt.derivation, Outcome.PROVED, ())


def state_defects(attempt: Attempt, derivation: Derivation, defects: Iterable[Defect]) -> Verdict:
    """Return the verdict for these defects and gaps, drawn with the relations of `derivation`."""
    plan = attempt.case.parallel
    found = reasons(plan, defects, partial(scenes, plan, derivation.world.terms, derivation.derived))
    outcome = Outcome.REFUTED if any(reason.refutes for reason in found) else Outcome.UNKNOWN
    return _verdict(attempt, derivation, outcome, found)


def _verdict(attempt: Attempt, derivation: Derivation, outcome: Outcome, found: tuple[Reason, ...]) -> Verdict:
    case = attempt.case
    return Verdict(
        case.reference.path,
        case.parallel.path,
        outcome,
        stages=count_stages(case, derivation, found),
        reasons=found,
        assumptions=attempt.assumptions,
        facts=_facts(attempt),
        coverage=coverage_of(case.parallel, derivation.derived),
        trains=bool(attempt.reference.expected.gradients or attempt.reference.expected.left),
    )


def _facts(attempt: Attempt) -> tuple[tuple[str, str], ...]:
    mesh, expected = attempt.case.parallel.mesh, attempt.reference.expected
    return (
        ("mesh", " x ".join(f"{axis.name} {axis.size}" for axis in mesh.axes) or "of one rank"),
        ("ranks", str(mesh.size)),
        ("micro-batches", str(attempt.case.micro_batches)),
        ("gradients", str(len(expected.gradients))),
        ("returned values", str(len(expected.losses))),
    )


def count_stages(case: Case, derivation: Derivation, found: Iterable[Reason]) -> StageCounts:
    """Return how many proof stages the plan has, and of how many the reasons say something."""
    replicas = case.parallel.replication.count if case.folded_axis else 1
    total, classes = (replicas * count for count in (derivation.derived.stages, derivation.derived.classes))
    places = {kind: {reason.location.pointer for reason in found if reason.refutes is kind} for kind in (True, False)}
    refuted, unknown = len(places[True]), len(places[False])
    return StageCounts(total, classes, max(0, total - refuted - unknown), refuted, unknown)
