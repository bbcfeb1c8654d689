"""Read pairs of plans, prove one against the other, and measure it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from tvlint.analyses.relations.grounds import FOUND_BY_READERS, REFUTING, Ground
from tvlint.findings import Finding, Outcome, Problem, Reason, Report, Severity, Verdict
from tvlint.ir.plan import Plan
from tvlint.readers.sources.resource_limits import without_collection
from tvlint.run.process.aside import Aside, Relay
from tvlint.run.process.session import Progress, Session
from tvlint.run.proof.captures import different_gradients, is_capture, judged, judged_without_plan, read_captures
from tvlint.run.proof.code_repair import with_code_repair
from tvlint.run.proof.pair import Pair, Plans, read_pair

if TYPE_CHECKING:
    from tvlint.cache.remember import Cache, Question
    from tvlint.equivalence.verdict.pairing import Decided
    from tvlint.ir.outline import Judged


Keep: TypeAlias = Callable[[Report], object]
"""Takes a report that holds already, though more may be found."""


@without_collection()
def prove_pair(
    pair: Pair, progress: Progress | None = None, known: dict[str, Plan] | None = None, keep: Keep = lambda report: None
) -> Report:
    """Return the report of one proof: a verdict, or the problems of plans that cannot be read.

    `known` are plans that have been read already, by path, and gets those that are read here. `seconds` of the verdict is
    wall time, with the reading that is done here; `peak_bytes` is the largest memory of this process so far. What holds before
    the last step is done is given to `keep`.
    """
    from tvlint.ir.outline import outline

    started = time.perf_counter()
    if is_capture(pair.parallel):
        return _prove_captures(pair, progress, started, keep)
    plans = read_pair(pair, progress, known, meanwhile=_load_the_proof)
    from tvlint.equivalence.verdict.prove import prove

    if not isinstance(plans, Plans):
        return Report(problems=tuple(dict.fromkeys(plans)))
    parallel, reference = plans.kinds[0], plans.reference
    findings = tuple(
        finding if finding.location.path == pair.parallel else replace(finding, found_in=pair.parallel)
        for finding in plans.findings
    )

    def reported(verdict: Verdict) -> Report:
        verdict = replace(verdict, seconds=time.perf_counter() - started, peak_bytes=peak_bytes())
        outlines = (outline(parallel, _judged(verdict), verdict.coverage), outline(reference))
        checked = (pair.parallel, pair.reference or reference.path)
        return Report(findings=findings, verdicts=(verdict,), checked=checked, outlines=outlines)

    verdict = _of_all_kinds(
        plans.kinds,
        lambda kind, decided: prove(
            kind,
            reference,
            assume=pair.assume,
            progress=progress,
            solver_seconds=pair.solver_seconds,
            replay=pair.replay,
            decided=decided,
        ),
        lambda verdict: keep(reported(_with_errors(verdict, plans.findings))),
    )
    return reported(with_code_repair(pair, plans, _with_errors(verdict, plans.findings)))


def _prove_captures(pair: Pair, progress: Progress | None, started: float, keep: Keep) -> Report:
    """Return the report on a captured program and its captured reference."""
    from tvlint.equivalence.verdict.prove import prove
    from tvlint.ir.outline import outline

    found = read_captures(pair.parallel, pair.reference)
    if isinstance(found, Problem):
        return Report(problems=(found,))
    parallel, reference = found
    if parallel.problem is not None:
        shown = judged_without_plan(parallel, reference, parallel.problem)
        if isinstance(shown, Problem):
            return Report(problems=(shown,))
        shown = replace(shown, seconds=time.perf_counter() - started, peak_bytes=peak_bytes())
        return Report(verdicts=(shown,), checked=(pair.parallel, pair.reference))

    def reported(verdict: Verdict) -> Report:
        verdict = judged(verdict, parallel, reference)
        verdict = replace(verdict, seconds=time.perf_counter() - started, peak_bytes=peak_bytes())
        outlines = (outline(parallel.plan, _judged(verdict), verdict.coverage), outline(reference.plan))
        return Report(verdicts=(verdict,), checked=(pair.parallel, pair.reference), outlines=outlines)

    verdict = prove(
        parallel.plan,
        reference.plan,
        assume=pair.assume,
        progress=progress,
        solver_seconds=pair.solver_seconds,
        replay=pair.replay,
        agrees=different_gradients(parallel, reference) == {},
        decided=lambda verdict: keep(reported(verdict)),
    )
    return reported(verdict)


def _load_the_proof() -> None:
    """Import what proves, which takes as long as reading a small plan."""
    import tvlint.equivalence.verdict.prove  # noqa: F401


def _judged(verdict: Verdict) -> Judged:
    """Return what the verdict says of segments; of several reasons in one, what the first says."""
    return {
        name: ("refuted" if reason.refutes else "unknown", frozenset(reason.ranks))
        for reason in reversed(verdict.reasons)
        for name in reason.segments
    }


def _of_all_kinds(kinds: Sequence[Plan], judge: Callable[[Plan, Decided], Verdict], decided: Decided) -> Verdict:
    """Return the verdict on a plan whose replicas may be of several kinds, by a judge of one kind."""
    first, *variants = kinds
    verdict = judge(first, decided)
    for kind in variants:
        both = partial(_both, verdict, kind)
        verdict = both(judge(kind, lambda other, both=both: decided(both(other))))  # type: ignore[misc]
    return verdict


def _both(one: Verdict, kind: Plan, other: Verdict) -> Verdict:
    """Return the verdict on a plan whose replicas differ, from that on some kinds and the other on one more kind of replica."""
    other = _named(other, kind)
    worse = max(one, other, key=lambda verdict: (Outcome.PROVED, Outcome.UNKNOWN, Outcome.REFUTED).index(verdict.outcome))
    assumptions = tuple(dict.fromkeys(one.assumptions + other.assumptions))
    return replace(worse, reasons=tuple(dict.fromkeys(one.reasons + other.reasons)), assumptions=assumptions)


def _with_errors(verdict: Verdict, findings: Iterable[Finding]) -> Verdict:
    """Return the verdict, refuted where the reader has found that the code fails, or returns or trains something else.

    Beside any other error of the code nothing is proved: what it does is not what was derived of it. Where a name has no value
    the run stops, which comes before what values would be.
    """
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    sure = [error for error in errors if error.rule in FOUND_BY_READERS]
    if verdict.outcome is Outcome.REFUTED:
        stops = any(REFUTING.get(reason.name) is Ground.FAILS for reason in verdict.reasons)
        sure = [finding for finding in sure if finding.rule == "undefined-tensor" and not stops]
    if not errors or (verdict.outcome is not Outcome.PROVED and not sure):
        return verdict
    found = (
        Reason(finding.rule, bool(sure), finding.message, finding.location, finding.ranks, related=finding.related)
        for finding in sure or errors
    )
    count, proved = verdict.stages, max(0, verdict.stages.proved - 1)
    if verdict.outcome is Outcome.REFUTED:
        stages = count
    elif sure:
        stages = replace(count, refuted=1, proved=proved) if count.total > count.unknown else count
    else:
        stages = replace(count, unknown=count.unknown + count.proved - proved, proved=proved)
    outcome = Outcome.REFUTED if sure else Outcome.UNKNOWN
    places = {finding.location for finding in sure}
    others = (reason for reason in verdict.reasons if reason.refutes or reason.location not in places)
    return replace(verdict, outcome=outcome, reasons=(*found, *others), stages=stages)


def _named(verdict: Verdict, plan: Plan) -> Verdict:
    """Return the verdict on one kind of replica, with its name in what is said; ranks are those of the first replica."""
    if not plan.name:
        return verdict
    reported = tuple(
        replace(reason, message=f"in {plan.name}, as in the first: {reason.message}") for reason in verdict.reasons
    )
    return replace(verdict, reasons=reported)


def peak_bytes() -> int:
    """Return the largest resident memory that this process had."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def prove_pairs(
    pairs: tuple[Pair, ...], session: Session | None = None, plans: dict[str, Plan] | None = None
) -> Iterator[Report]:
    """Yield the report of each pair, in order, from the cache where one knows it; what is proved here is kept there.

    With more than one job, that many pairs are proved at a time, in processes of their own. `plans` holds what was read, by
    path: a reference is read once for all its pairs, and whoever owns the mapping decides when the last plans are let go of,
    which takes seconds for large ones.
    """
    session = session or Session()
    jobs = session.jobs
    held: dict[str, Plan] = {} if plans is None else plans
    with ExitStack() as stack:
        aside: dict[Pair, Aside[Report]] = {}

        def prove_one(index: int) -> Report:
            pair = pairs[index]
            if jobs == 1 or len(pairs) == 1 or not hasattr(os, "fork"):
                return _prove_once(pair, session, held)
            for other in pairs[index : index + jobs]:
                if other not in aside:
                    relay = Relay(session.steps.keep)
                    work = partial(_prove_once, other, Session(relay, cache=session.cache), {})
                    aside[other] = stack.enter_context(Aside(work, relay=relay))
            return aside[pair].value()

        for index, pair in enumerate(pairs):
            if session.progress is not None and jobs > 1:
                session.progress(f"proving {len(pairs)} plans, {index} done", index / len(pairs))
            for path in [path for path in held if path not in (pair.parallel, pair.reference)]:
                del held[path]
            report = session.steps.do(pair.parallel, partial(prove_one, index), "the proof", _unfinished)
            yield Report(problems=(report,)) if isinstance(report, Problem) else report


def _unfinished(kept: list[Report], problem: Problem) -> Report:
    """Return the report that was kept last, which says that nothing more was found within the budget."""
    (verdict,) = kept[-1].verdicts
    missing = "a repair was not looked for to the end" if verdict.outcome is Outcome.REFUTED else "the proof was not continued"
    first, *others = verdict.reasons
    more = f" ({problem.help})" if problem.help else ""
    first = replace(first, message=f"{first.message}; {missing}, since {problem.message}{more}")
    return replace(kept[-1], verdicts=(replace(verdict, reasons=(first, *others), out_of_time=True),))


def _prove_once(pair: Pair, session: Session, plans: dict[str, Plan]) -> Report:
    """Return the report of one pair, or what was kept of it."""
    started = time.perf_counter()
    question = _question(session.cache, pair)
    found = recalled(session.cache, question, started)
    if found is not None:
        return found
    report = prove_pair(pair, session.progress, plans, session.steps.keep)
    if session.cache is not None and lasts(report):
        session.cache.keep(question, report, Report)
    return report


def _question(cache: Cache | None, pair: Pair) -> Question | None:
    """Return the pair as a question to the cache; without a reference it is about what lies beside the generated code."""
    if cache is None:
        return None
    beside = pair.parallel if os.path.isdir(pair.parallel) else os.path.join(os.path.dirname(pair.parallel), "gencode0.py")
    return cache.question("prove", pair, (pair.parallel, pair.reference or beside))


def recalled(cache: Cache | None, question: Question | None, started: float | None = None) -> Report | None:
    """Return the report that was kept, which says so and tells this run's time and memory."""
    from tvlint.reporters.text.totals import seconds_text

    started = time.perf_counter() if started is None else started
    report = cache.recall(question, Report) if cache is not None else None
    if report is None:
        return None

    def reported(verdict: Verdict) -> Verdict:
        facts = (*verdict.facts, ("cached proof of", seconds_text(verdict.seconds)))
        return replace(verdict, facts=facts, seconds=time.perf_counter() - started, peak_bytes=peak_bytes())

    return replace(report, verdicts=tuple(map(reported, report.verdicts)))


def lasts(report: Report) -> bool:
    """Return whether proving again would give the same: a plan was read, and nothing ran out of time."""
    return bool(report.verdicts) and not report.problems and not any(verdict.out_of_time for verdict in report.verdicts)
