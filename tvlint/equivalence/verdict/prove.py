"""`prove`: does the parallel plan train the same model as the reference plan?

The passes, in order, each a function from frozen values to a frozen value:

- `casts.with_flags`, `held_weights.as_held`: two plans -> the same, with logic of flags in place of that of
  bits, and weights in the shapes in which ranks hold them;
- `gathered_reductions.with_reductions_over_ranks`: likewise, where that is a proof;
- `parts_as_places.with_parts_as_places`, `sorted_rows.without_sorted_rows`: likewise, for a case that is still open;
- `pairing.pair`: two plans -> a `Case`, or the gap that keeps them from being compared;
- `repeated_runs.without_repeated_runs`, `casts.without_needless_casts`, `unread_places.without_unread_places`,
  `masked_places.with_compared_places`, `masked_lookups.with_stated_ranges`, `squared_norms.with_sums_of_squares`,
  `padded_classes.without_padded_classes`: a plan -> one that computes the same;
- `judge.judge`: a case -> the `Attempt` that proves it, or the verdict that explains, with a repair. It calls
  - `replica_folding.fold_replicas`: a case -> the case of one replica, where all are alike;
  - `attempt.attempt_proof`: a case -> an `Attempt`: what differs, which side conditions are violated, whether that is a proof,
    by `derivation.derive_reference`, `derivation.derive_parallel` (the relations of both plans, in one table of terms) and
    `compare.compare` (what differs in gradients, states, outputs, updates and roots);
  - `causes.recover`, `causes.differing_operators`, `causes.causes`: an attempt that proves nothing -> the defects and gaps that
    explain it;
- `judge.find_proof`: a case whose values alone are open (`open_values.OF_VALUES`) -> a proof from normal forms;
- `statement.state_proof`, `statement.state_gaps`: attempts and defects -> a verdict; `solver_recheck.with_opinion` asks z3;
- `run_both.run_both`: a pair that is still open -> what runs on random numbers show; `assumptions.holds_on_any_numbers` says
  on which, `unmade_gradients.ways_to_run` in which ways, `mixed_parts.taken_with_what_is_complete` names a cause;
- `declared_results.otherwise_declared`, `run_both.run_once`: a proof that does not rest on both plans as they are written ->
  the same, or an open pair;
- `repair.repaired_on_numbers`: a verdict without a repair -> the edit that makes the plan prove.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from tvlint.analyses.relations.defect import Defect, reasons, source_of
from tvlint.analyses.relations.derivation.operators.unknown_operators import why_unknown
from tvlint.analyses.relations.grounds import REFUTING, Ground
from tvlint.analyses.relations.terms.terms import Telling
from tvlint.equivalence.explain.repair import with_repair
from tvlint.equivalence.side_conditions.hazards_and_deadlock import check_order
from tvlint.equivalence.side_conditions.repeated_runs import without_repeated_runs
from tvlint.equivalence.verdict.assumptions import holds_on_any_numbers
from tvlint.equivalence.verdict.attempt import Attempt
from tvlint.equivalence.verdict.casts import with_flags, without_needless_casts
from tvlint.equivalence.verdict.declared_results import otherwise_declared
from tvlint.equivalence.verdict.gathered_reductions import with_reductions_over_ranks
from tvlint.equivalence.verdict.held_weights import as_held
from tvlint.equivalence.verdict.judge import find_proof, judge
from tvlint.equivalence.verdict.masked_lookups import with_stated_ranges
from tvlint.equivalence.verdict.masked_places import with_compared_places
from tvlint.equivalence.verdict.mixed_parts import taken_with_what_is_complete
from tvlint.equivalence.verdict.open_values import OF_VALUES
from tvlint.equivalence.verdict.padded_classes import without_padded_classes
from tvlint.equivalence.verdict.pairing import Case, Decided, Progress, pair
from tvlint.equivalence.verdict.parts_as_places import with_parts_as_places
from tvlint.equivalence.verdict.sorted_rows import without_sorted_rows
from tvlint.equivalence.verdict.squared_norms import with_sums_of_squares
from tvlint.equivalence.verdict.statement import state_gaps, state_proof
from tvlint.equivalence.verdict.unmade_gradients import ways_to_run
from tvlint.equivalence.verdict.unread_places import without_unread_places
from tvlint.findings import Outcome, Reason, StageCounts, Verdict
from tvlint.ir.identical import Identical
from tvlint.ir.operators import NOT_UNDERSTOOD, Compute
from tvlint.ir.plan import Plan

if TYPE_CHECKING:
    from tvlint.equivalence.verdict.numbers.outcome import Difference

IN_NORMAL_FORM = "reference-gradient"
"""The gap of a reference that normal forms alone tell; what differs beside it differs in these."""


def prove(
    parallel: Plan,
    reference: Plan,
    *,
    assume: frozenset[str] = frozenset(),
    progress: Progress | None = None,
    solver_seconds: float | None = None,
    replay: bool = False,
    agrees: bool = False,
    decided: Decided = lambda verdict: None,
) -> Verdict:
    """Return the verdict on the pair.

    Proved means: under the assumptions that the verdict lists, for all inputs and weights, every rank's gradient of every
    piece of every weight after reduction equals that of the reference, and so do the returned values. Refuted comes with a
    structural fact or a number; whatever could not be decided is Unknown. With `solver_seconds`, Z3 gives a second opinion on
    every annotation that a proof relied on, that many seconds at most on each; one that it refutes makes the verdict Unknown.
    What is left open is run on random numbers, with `replay` what is proved as well; once also what is proved of plans that are
    written otherwise first. `agrees` says that both programs are known to have given the same numbers: another expression is
    then no end, and no change is looked for that mends it. Whatever holds but that the pair is proved is `decided` as soon as
    it holds, and may be decided further.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        given = parallel, reference
        parallel, reference = as_held(with_flags(parallel), with_flags(reference))
        case = pair(parallel, reference, assume)
        if isinstance(case, Defect):
            return state_gaps(parallel, reference, parallel, _not_understood(parallel) or [case])
        case = replace(case, agrees=agrees)
        verdict, as_written = _decided(case, progress or (lambda text, share: None), solver_seconds, decided)
        verdict = _decided_on_numbers(case, verdict, replay)
        as_written = as_written and parallel is given[0] and reference is given[1]
        if verdict.outcome is Outcome.PROVED and not (as_written or agrees):
            verdict = _shown_as_written(case, verdict)
        if verdict.outcome is not Outcome.PROVED:
            decided(verdict)
        return _with_repair(case, verdict)
    finally:
        if collecting:
            gc.enable()


def _not_understood(plan: Plan) -> list[Defect]:
    """Return the statements of a plan that may do anything: what it lacks may stand in them."""
    return [
        Defect("unsupported-operator", False, why_unknown(operator), program.ranks[0], source=operator.source, place=operator)
        for program in plan.programs
        for step in program.steps
        for operator in plan.segments[step.segment].operators
        if isinstance(operator, Compute) and NOT_UNDERSTOOD in operator.attributes and not operator.outputs
    ]


def is_proved(parallel: Plan, reference: Plan, assume: frozenset[str] = frozenset()) -> bool:
    """Return whether the pair is proved, from expressions or from normal forms; nothing is explained or repaired.

    All that `prove` proves is; what it finds a reason against before it asks for normal forms may be, too.
    """
    parallel, reference = as_held(with_flags(parallel), with_flags(reference))
    case = pair(parallel, reference, assume)
    if isinstance(case, Defect):
        return False
    once = _once(case)
    found = find_proof(once, lambda text, share: None, tuple(Telling))
    as_ordered = once.parallel is parallel
    for way in _reduced(once) if found is None else ():
        found, as_ordered = found or find_proof(way, lambda text, share: None), False
    if found is None and (places := _with_places(once)) is not once:
        found = find_proof(places, lambda text, share: None, tuple(Telling))
    return found is not None and (as_ordered or next(iter(check_order(parallel)), None) is None)


def _once(case: Case) -> Case:
    """Return the case with plans that run and cast nothing for nothing, state ranges of lookups, and sum squares for norms."""
    plan, reference = (_simplified(Identical(each)) for each in (without_repeated_runs(case.parallel), case.reference))
    if without_padded_classes(reference) is reference:
        plan = without_padded_classes(plan)
    return replace(case, parallel=plan, written=plan, reference=reference)


@lru_cache(4)
def _simplified(plan: Identical[Plan]) -> Plan:
    """Return the plan without casts and places that nothing needs, with ranges of lookups and with squares for norms."""
    return with_sums_of_squares(
        with_stated_ranges(with_compared_places(without_unread_places(without_needless_casts(plan.held))))
    )


def _decided(case: Case, progress: Progress, solver_seconds: float | None, decided: Decided) -> tuple[Verdict, bool]:
    """Return the verdict on the plan without the runs that it repeats, from expressions and then from normal forms of them.

    With it comes whether it is one on both plans as they are written.
    """
    once = _once(case)
    plan, as_written = once.parallel, once.parallel is case.parallel and once.reference is case.reference
    for way in _reduced(once):
        proof = find_proof(way, progress)
        verdict = None if proof is None else _stated(proof, progress, solver_seconds)
        if verdict is not None and verdict.outcome is Outcome.PROVED:
            return _in_order(case.parallel, verdict), False

    @cache
    def agreement() -> str:
        from tvlint.equivalence.verdict.numbers.run_both import where_runs_agree

        return where_runs_agree(case)

    def tell_refuted(found: Verdict) -> None:
        refuted = _confirmed(found, agreement)
        if refuted.outcome is Outcome.REFUTED and not (case.agrees and _differs_alone(refuted)):
            decided(refuted)

    found = judge(once, progress, decided=tell_refuted)
    verdict = _confirmed(found, agreement) if isinstance(found, Verdict) else _stated(found, progress, solver_seconds)
    open_ = verdict.outcome is Outcome.UNKNOWN and any(reason.name in OF_VALUES for reason in verdict.reasons)
    if verdict.outcome is Outcome.UNKNOWN:
        decided(verdict)
    open_ = open_ or (case.agrees and _differs_alone(verdict))
    for way in _other_ways(once) if open_ else ():
        progress("deriving normal forms", 0.9)
        proof = find_proof(way, progress)
        again = verdict if proof is None else _stated(proof, progress, solver_seconds)
        if again.outcome is Outcome.PROVED:
            verdict, as_written = again, False
            break
    return verdict if plan is case.parallel else _in_order(case.parallel, verdict), as_written


def _other_ways(once: Case) -> Iterator[Case]:
    """Yield the case with other terms for values, and with parts of views as places."""
    yield from (replace(once, telling=telling) for telling in Telling if telling is not Telling.AS_WRITTEN)
    places = _with_places(once)
    yield from (replace(places, telling=telling) for telling in Telling if places is not once)


def _reduced(once: Case) -> Iterator[Case]:
    """Yield the case with reductions over ranks in the place of those of what they gather, where it has such, in all terms."""
    plan = with_reductions_over_ranks(once.parallel)
    if plan is not once.parallel:
        yield from (replace(once, parallel=plan, written=plan, telling=telling) for telling in Telling)


def _with_places(once: Case) -> Case:
    """Return the case with parts of views as places, and rows as they were sorted; the case itself where it has neither."""
    plan, reference = (with_parts_as_places(without_sorted_rows(each)) for each in (once.parallel, once.reference))
    is_same = plan is once.parallel and reference is once.reference
    return once if is_same else replace(once, parallel=plan, written=plan, reference=reference)


def _stated(proof: Attempt, progress: Progress, solver_seconds: float | None) -> Verdict:
    """Return the verdict on a proof, and what the solver says of it where it is asked."""
    if solver_seconds is None:
        return state_proof(proof)
    from tvlint.equivalence.verdict.solver_recheck import with_opinion

    return with_opinion(state_proof(proof), proof, solver_seconds, progress)


def _decided_on_numbers(case: Case, verdict: Verdict, replay: bool) -> Verdict:
    """Return the verdict with what runs on random numbers show of a pair that is open, and with `replay` of one that is proved.

    Agreement decides nothing. A difference refutes a pair of which only values are open; a proved one is left open, since
    prover or replay is wrong.
    """
    if verdict.outcome is Outcome.REFUTED or (verdict.outcome is Outcome.PROVED and not replay):
        return verdict
    names = {reason.name for reason in verdict.reasons}
    others = {name for name in names - OF_VALUES if not (IN_NORMAL_FORM in names and REFUTING.get(name) is Ground.DIFFERS)}
    if others - {"absent-gradient"}:
        return verdict
    from tvlint.equivalence.verdict.numbers.outcome import Agreement, Difference, NotRun
    from tvlint.equivalence.verdict.numbers.run_both import run_both
    from tvlint.equivalence.verdict.numbers.words import describe_runs

    if others:
        ways = [run_both(way) for way in ways_to_run(case)]
        differences = [replace(way, first=None) for way in ways if isinstance(way, Difference)]
        if not ways or len(differences) < len(ways):
            return verdict
        found: Agreement | Difference | NotRun = differences[0]
    else:
        any_numbers = verdict.outcome is Outcome.PROVED and holds_on_any_numbers(verdict.assumptions)
        found = run_both(case, any_numbers)
    if isinstance(found, Difference):
        return _different(case, verdict, found)
    if isinstance(found, Agreement):
        return replace(verdict, facts=(*verdict.facts, ("agrees with the reference on", describe_runs(found.sizes))))
    return replace(verdict, facts=(*verdict.facts, ("not run on numbers, since", found.why)))


def _different(case: Case, verdict: Verdict, found: Difference) -> Verdict:
    """Return the verdict with a difference that runs show, which refutes an open pair and leaves a proved one open."""
    from tvlint.equivalence.verdict.numbers.words import as_defects

    open_ = verdict.outcome is Outcome.UNKNOWN
    taken = taken_with_what_is_complete(case) if open_ else None
    places = {replace(reason.location, pointer="") for reason in verdict.reasons}
    sources = ((each, source_of(each)) for each in found.since)
    operator = next((each for each, source in sources if source and replace(source, pointer="") in places), None)
    if found.first is not None and operator is not None:
        found = replace(found, first=(*found.first[:2], operator))
    shown = reasons(case.parallel, as_defects(case.parallel, found, open_, taken))
    place = next((reason.location for reason in verdict.reasons if reason.location.line), None)
    if place is not None and found.first is None and taken is None and not found.fails:
        shown = tuple(replace(reason, location=place) for reason in shown)
    stages = _stage_counts_of(verdict, shown)
    outcome = Outcome.REFUTED if open_ else Outcome.UNKNOWN
    return replace(verdict, outcome=outcome, reasons=(*shown, *verdict.reasons), stages=stages)


def _shown_as_written(case: Case, verdict: Verdict) -> Verdict:
    """Return the verdict on a proof of plans that were written otherwise first, or of normal forms of their values.

    It stays open where the plans as they are written give other shapes than they declare, or other numbers than each other.
    """
    from tvlint.equivalence.verdict.numbers.run_both import run_once

    for plan in (case.parallel, case.reference):
        if otherwise := otherwise_declared(plan):
            return _contradicted(plan, verdict, "wrong-shape-claim", otherwise)
    found = run_once(case, holds_on_any_numbers(verdict.assumptions))
    return verdict if found is None else _different(case, verdict, found)


def _contradicted(plan: Plan, verdict: Verdict, name: str, text: str) -> Verdict:
    """Return the verdict on a proof that something about a plan contradicts."""
    shown = reasons(plan, [Defect(name, False, text, plan.programs[0].ranks[0])])
    return replace(verdict, outcome=Outcome.UNKNOWN, reasons=shown, stages=_stage_counts_of(verdict, shown))


def _with_repair(case: Case, verdict: Verdict) -> Verdict:
    """Return the verdict with an edit that makes the plan prove, where what was derived names none and one is found.

    Of generated code it is the lines that are to be changed: see `tvlint/run/proof/code_repair.py`.
    """
    if case.agrees or not _differs_alone(verdict) or any(reason.repair for reason in verdict.reasons):
        return verdict
    from tvlint.equivalence.verdict.numbers.origin import GENERATED
    from tvlint.equivalence.verdict.numbers.repair import repaired_on_numbers

    if case.parallel.format in GENERATED:
        return verdict

    near = [reason.location for reason in verdict.reasons]
    found = repaired_on_numbers(case, lambda changed: is_proved(changed, case.reference, case.assume), near)
    return verdict if found is None else replace(verdict, reasons=with_repair(verdict.reasons, found))


def _stage_counts_of(verdict: Verdict, shown: tuple[Reason, ...]) -> StageCounts:
    """Return the counts of a verdict with these reasons before its own."""
    stage_counts, refuted = verdict.stages, sum(reason.refutes for reason in shown)
    open_ = max(0, stage_counts.unknown - refuted)
    return replace(
        stage_counts,
        refuted=stage_counts.refuted + refuted,
        unknown=open_,
        proved=max(0, stage_counts.total - stage_counts.refuted - refuted - open_),
    )


def _in_order(plan: Plan, verdict: Verdict) -> Verdict:
    """Return the verdict on a plan that was derived without the runs that it repeats, whose order is that of the plan."""
    found = reasons(plan, check_order(plan)) if verdict.outcome is Outcome.PROVED else ()
    if not found:
        return verdict
    outcome = Outcome.REFUTED if any(reason.refutes for reason in found) else Outcome.UNKNOWN
    return replace(verdict, outcome=outcome, reasons=found)


def _differs_alone(verdict: Verdict) -> bool:
    """Return whether the plan is refuted for the values that it computes, and for nothing else."""
    grounds = {REFUTING[reason.name] for reason in verdict.reasons if reason.refutes}
    return verdict.outcome is Outcome.REFUTED and grounds == {Ground.DIFFERS}


def _confirmed(verdict: Verdict, agreement: Callable[[], str]) -> Verdict:
    """Return the verdict, which is left open where it rests on other values and none shows when both plans are run."""
    where = agreement() if _differs_alone(verdict) else ""
    if not where:
        return verdict
    text = f"; and yet all gradients and returned values are the reference's {where}"
    found = [replace(reason, refutes=False, repair="") for reason in verdict.reasons]
    found[0] = replace(found[0], message=found[0].message + text)
    stages = replace(verdict.stages, refuted=0, unknown=verdict.stages.unknown + verdict.stages.refuted)
    return replace(verdict, outcome=Outcome.UNKNOWN, reasons=tuple(found), stages=stages)
