"""`prove`: does the parallel plan train the same model as the reference plan?

The passes, in order, each a function from frozen values to a frozen value:

- `pairing.pair`: two plans -> a `Case`, or the gap that keeps them from being compared;
- `replica_folding.fold_replicas`: a case -> the case of one replica, where all are alike;
- `derivation.derive_reference`, `derive_parallel`: a case -> the relations of both plans, in one table of terms;
- `compare.compare`: relations -> what differs in gradients, states, outputs, updates and roots;
- `attempt.attempt_proof`: a case -> an `Attempt`: what differs, which side conditions are violated, whether that is a proof;
- `causes.recover`, `differing_operators`, `causes`: an attempt that proves nothing -> the defects and gaps that explain it;
- `judge.judge`: a case -> the attempt that proves it, or the verdict that explains, with a repair;
- `statement`: attempts and defects -> a verdict.
"""

from __future__ import annotations

import gc
from dataclasses import replace

from tvlint.analyses.relations.defect import Trouble, reasons
from tvlint.analyses.relations.grounds import REFUTING, Ground
from tvlint.equivalence.side_conditions.hazards_and_deadlock import check_order
from tvlint.equivalence.side_conditions.repeated_runs import without_repeated_runs
from tvlint.equivalence.verdict.attempt import Attempt
from tvlint.equivalence.verdict.causes import CONSEQUENCES
from tvlint.equivalence.verdict.judge import find_proof, judge
from tvlint.equivalence.verdict.pairing import Case, Progress, pair
from tvlint.equivalence.verdict.statement import state_gaps, state_proof
from tvlint.findings import Outcome, Verdict
from tvlint.ir.plan import Plan

_EXPRESSIONS = frozenset({*CONSEQUENCES, "other-constant", "other-gradient", "other-output", "unequal-addends"})
"""Gaps between expressions, which normal forms of them may close."""


def prove(
    parallel: Plan,
    reference: Plan,
    *,
    assume: frozenset[str] = frozenset(),
    progress: Progress | None = None,
    solver_seconds: float | None = None,
) -> Verdict:
    """Return the verdict on the pair.

    Proved means: under the assumptions that the verdict lists, for all inputs and weights, every rank's gradient of every
    piece of every weight after reduction equals that of the reference, and so do the returned values. Refuted comes with a
    structural fact or a number; whatever could not be decided is Unknown. With `solver_seconds`, Z3 gives a second opinion on
    every annotation that a proof relied on, that many seconds at most on each; one that it refutes makes the verdict Unknown.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        case = pair(parallel, reference, assume)
        if isinstance(case, Trouble):
            return state_gaps(parallel, reference, parallel, [case])
        verdict = _decided(case, progress or (lambda text, share: None), solver_seconds)
        return _confirmed(case, verdict)
    finally:
        if collecting:
            gc.enable()


def _decided(case: Case, progress: Progress, solver_seconds: float | None) -> Verdict:
    """Return the verdict on the plan without the runs that it repeats, from expressions and then from normal forms of them."""
    once = replace(case, parallel=without_repeated_runs(case.parallel))
    found = judge(once, progress)
    verdict = found if isinstance(found, Verdict) else _stated(found, progress, solver_seconds)
    if verdict.outcome is Outcome.UNKNOWN and any(reason.name in _EXPRESSIONS for reason in verdict.reasons):
        progress("deriving normal forms", 0.9)
        proof = find_proof(replace(once, normal_forms=True), progress)
        again = verdict if proof is None else _stated(proof, progress, solver_seconds)
        verdict = again if again.outcome is Outcome.PROVED else verdict
    return verdict if once.parallel is case.parallel else _in_order(case.parallel, verdict)


def _stated(proof: Attempt, progress: Progress, solver_seconds: float | None) -> Verdict:
    """Return the verdict on a proof, and what the solver says of it where it is asked."""
    if solver_seconds is None:
        return state_proof(proof)
    from tvlint.equivalence.verdict.solver_recheck import with_opinion

    return with_opinion(state_proof(proof), proof, solver_seconds, progress)


def _in_order(plan: Plan, verdict: Verdict) -> Verdict:
    """Return the verdict on a plan that was derived without the runs that it repeats, whose order is that of the plan."""
    found = reasons(plan, check_order(plan)) if verdict.outcome is Outcome.PROVED else ()
    if not found:
        return verdict
    outcome = Outcome.REFUTED if any(reason.refutes for reason in found) else Outcome.UNKNOWN
    return replace(verdict, outcome=outcome, reasons=found)


def _confirmed(case: Case, verdict: Verdict) -> Verdict:
    """Return the verdict, which is left open where it rests on other values and none shows when both plans are run."""
    grounds = {REFUTING[reason.name] for reason in verdict.reasons if reason.refutes}
    if verdict.outcome is not Outcome.REFUTED or grounds != {Ground.DIFFERS}:
        return verdict
    from tvlint.equivalence.verdict.on_numbers import SEEDS, agree_on_numbers

    if not agree_on_numbers(case):
        return verdict
    text = f"; and yet all gradients and returned values are the reference's in {SEEDS} runs on random numbers"
    found = [replace(reason, refutes=False, repair="") for reason in verdict.reasons]
    found[0] = replace(found[0], message=found[0].message + text)
    stages = replace(verdict.stages, refuted=0, unknown=verdict.stages.unknown + verdict.stages.refuted)
    return replace(verdict, outcome=Outcome.UNKNOWN, reasons=tuple(found), stages=stages)
