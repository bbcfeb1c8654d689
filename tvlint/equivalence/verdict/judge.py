"""Judge a case: prove it, or say what keeps it from being proved and which change would make it prove."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvlint.analyses.relations.defect import Declare, Defect
from tvlint.analyses.relations.grounds import REFUTING, Ground
from tvlint.analyses.relations.terms.terms import Telling
from tvlint.equivalence.explain.repair import Repair, repair, with_repair
from tvlint.equivalence.verdict.attempt import Attempt, attempt_proof
from tvlint.equivalence.verdict.causes import FACTORS, causes, differing_operators, recover, violations_of_one_replica
from tvlint.equivalence.verdict.derivation import NotUnderstood
from tvlint.equivalence.verdict.open_values import is_open
from tvlint.equivalence.verdict.pairing import Case, Decided, Progress, pair
from tvlint.equivalence.verdict.replica_folding import fold_replicas, on_all_replicas
from tvlint.equivalence.verdict.statement import count_stages, state_defects, state_gaps
from tvlint.findings import Outcome, Reason, Verdict
from tvlint.ir.plan import Plan

_CAUSES = 3
"""So many causes of one refuted plan are looked for behind one another."""

_LARGEST_EXPLAINED_ON_ALL_RANKS = 64
"""What is wrong with a plan of so many ranks is explained on all of them, in its own slices; in larger ones on one replica."""


def find_proof(case: Case, progress: Progress, tellings: Sequence[Telling] = ()) -> Attempt | None:
    """Return the attempt that proves the case, of one replica or of all ranks; None where neither does.

    Each of the `tellings` is tried, only that of the case where none is given, until what keeps the case from being proved is
    nothing that another one tells otherwise. Of a large plan whose replicas can be folded only one replica is derived.
    """
    one = fold_replicas(case)
    ways = [case] if one is None else [one] if _is_large(case) else [one, case]
    for telling in tellings or (case.telling,):
        for way in tuple(ways):
            attempt = attempt_proof(replace(way, telling=telling), progress)
            if isinstance(attempt, Attempt) and attempt.is_proved:
                return attempt
            if isinstance(attempt, Attempt) and not is_open(attempt):
                ways.remove(way)
    return None


def judge(
    case: Case, progress: Progress, most_causes: int = _CAUSES, decided: Decided = lambda verdict: None
) -> Attempt | Verdict:
    """Return the attempt that proves the case; or the verdict that explains why it is not proved.

    A refuted one is `decided` before repairs of it are tried.

    One replica is derived before all ranks are, where replicas can be folded. It decides where it proves, and for a large plan
    where its explanation holds of all ranks.
    """
    one = fold_replicas(case)
    found = None if one is None else _judge_one_replica(one, progress, most_causes, decided)
    if found is not None:
        return found
    attempt = attempt_proof(case, progress)
    if isinstance(attempt, NotUnderstood):
        in_normal_form = _in_normal_form(case, progress, most_causes)
        gaps = state_gaps(case.parallel, case.reference, case.reference, attempt.gaps)
        return replace(gaps, reasons=(*gaps.reasons, *in_normal_form)) if isinstance(in_normal_form, tuple) else in_normal_form
    return attempt if attempt.is_proved else explain(attempt, progress, most_causes, decided)


def _in_normal_form(case: Case, progress: Progress, most_causes: int) -> Attempt | Verdict | tuple[Reason, ...]:
    """Return what refutes a case whose reference is understood in a normal form only, or the attempt that proves it there.

    Another expression shows nothing in normal form, but how the plan runs does, what it says of itself, and a factor. Where
    nothing does, the reasons are returned by which the first normal form would refute the case: runs on numbers may show that.
    """
    unsure: tuple[Reason, ...] = ()
    for telling in (telling for telling in Telling if telling is not case.telling):
        attempt = attempt_proof(replace(case, telling=telling), progress)
        if isinstance(attempt, NotUnderstood):
            continue
        if attempt.is_proved:
            return attempt
        verdict = explain(attempt, progress, most_causes)
        sure = [reason for reason in verdict.reasons if reason.refutes and _is_sure(reason)]
        if sure:
            return replace(verdict, reasons=tuple(sure))
        unsure = unsure or tuple(replace(reason, refutes=False) for reason in verdict.reasons if reason.refutes)
    return unsure


def _is_sure(reason: Reason) -> bool:
    """Return whether a reason does not depend on how values are written."""
    return REFUTING[reason.name] is not Ground.DIFFERS or reason.name in FACTORS


def _judge_one_replica(case: Case, progress: Progress, most_causes: int, decided: Decided) -> Attempt | Verdict | None:
    """Return what one replica shows of all ranks; None where these have to be derived."""
    attempt = attempt_proof(case, progress)
    if isinstance(attempt, NotUnderstood):
        return None
    if attempt.is_proved or not _is_large(case):
        return attempt if attempt.is_proved else None
    if attempt.values_agree and not attempt.violations:
        return None
    verdict = explain(attempt, progress, most_causes, decided)
    if verdict.outcome is Outcome.REFUTED:
        return verdict
    return None if violations_of_one_replica(attempt) or attempt.values_agree or not verdict.stages.total else verdict


def _is_large(case: Case) -> bool:
    return case.parallel.mesh.size > _LARGEST_EXPLAINED_ON_ALL_RANKS


def explain(attempt: Attempt, progress: Progress, most_causes: int, decided: Decided = lambda verdict: None) -> Verdict:
    """Return the verdict on a case that is not proved, with its causes, and a repair where one is found.

    Side conditions alone are the causes where the values agree. Elsewhere the plan is derived beyond its mistakes.
    """
    if attempt.values_agree:
        return state_defects(attempt, attempt.derivation, violations_of_one_replica(attempt))
    progress("looking for causes", 0.8)
    recovery = recover(attempt)
    derivation, explain_all = recovery.derivation, recovery.is_complete
    differing = differing_operators(attempt.case.parallel, derivation, explain_all)
    if not explain_all and any(defect.fix is not None for defect in differing):
        _tell_refuted(state_defects(attempt, derivation, causes(attempt, recovery, differing)), decided)
        explain_all = find_repair(attempt.case, differing, progress, most_causes=1) is not None
        differing = differing_operators(attempt.case.parallel, derivation, explain_all)
    found = causes(attempt, recovery, differing)
    verdict = state_defects(attempt, derivation, found)
    if verdict.outcome is not Outcome.REFUTED and not any(isinstance(defect.fix, Declare) for defect in found):
        return verdict
    _tell_refuted(verdict, decided)
    change = find_repair(attempt.case, found, progress, most_causes)
    if change is None:
        return verdict
    repaired = with_repair(verdict.reasons, change)
    outcome = Outcome.REFUTED if any(reason.refutes for reason in repaired) else verdict.outcome
    return replace(verdict, outcome=outcome, reasons=repaired, stages=count_stages(attempt.case, derivation, repaired))


def _tell_refuted(verdict: Verdict, decided: Decided) -> None:
    if verdict.outcome is Outcome.REFUTED:
        decided(verdict)


def find_repair(case: Case, defects: list[Defect], progress: Progress, most_causes: int) -> Repair | None:
    """Return a change of the plan as it is written after which it is proved; of several causes, one for each of them.

    None is looked for where the programs gave the same numbers and nothing keeps the plan from running as it was run.
    """
    if case.agrees and not any(REFUTING.get(defect.name) in (Ground.FAILS, Ground.RACES) for defect in defects):
        return None
    found = on_all_replicas(case, defects) if case.folded_axis else defects

    def proves(changed: Plan) -> bool:
        changed_case = pair(changed, case.reference, case.assume)
        return isinstance(changed_case, Case) and find_proof(changed_case, progress) is not None

    def judged(changed: Plan) -> Verdict | None:
        changed_case = pair(changed, case.reference, case.assume)
        verdict = judge(changed_case, progress, most_causes - 1) if isinstance(changed_case, Case) else None
        return verdict if isinstance(verdict, Verdict) else None

    return repair(case.written, found, proves, judged if most_causes > 1 else None)
