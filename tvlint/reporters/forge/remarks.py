"""Remarks of a report as services list them: one for each finding, each defect or gap of a proof, each unreadable input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tvlint.findings import Finding, Fix, Outcome, Problem, Reason, Related, Report, Severity, Verdict
from tvlint.identity import fingerprint, numbered, reason_fingerprint
from tvlint.ir.location import Location
from tvlint.ir.values import dataclass
from tvlint.reporters.context import Context
from tvlint.reporters.forge.anchor import Anchor, finding_anchor, problem_anchor, reason_anchor, repository, verdict_anchor
from tvlint.reporters.text.paths import place, relative
from tvlint.reporters.text.totals import by_severity, published, set_aside


@dataclass(frozen=True, slots=True)
class Remark:
    """One remark. `level` is its severity for a service, which fails for errors only; `details` are named facts."""

    rule: str
    severity: Severity
    level: Severity
    title: str
    message: str
    location: Location
    anchor: Anchor
    identity: str
    details: tuple[tuple[str, str], ...] = ()
    related: tuple[Related, ...] = ()
    ranks: tuple[int, ...] = ()
    flow: tuple[Related, ...] = ()
    """How the wrong value came about, from its cause to its use."""
    fixes: tuple[Fix, ...] = ()


def remarks(report: Report, context: Context) -> Iterator[Remark]:
    """Yield what could not be read, then refuted proofs, then findings from the worst on, then proofs that are not decided."""
    for problem in report.problems:
        yield _of_problem(problem, context)
    for verdict in report.verdicts:
        if verdict.outcome is Outcome.REFUTED:
            yield from _of_verdict(verdict, report, context)
    for finding in by_severity(report.findings):
        yield _of_finding(finding, report, context)
    for verdict in report.verdicts:
        if verdict.outcome is Outcome.UNKNOWN:
            yield from _of_verdict(verdict, report, context)


def silenced(report: Report, context: Context) -> Iterator[Remark]:
    """Yield how many findings are silenced or known, at the first silenced or the first checked file; nothing for none."""
    firsts = [*(silenced.finding.location for silenced in report.silenced[:1]), *map(Location, report.checked[:1])]
    text = "; ".join(set_aside(report))
    for first in firsts[:1] if text else ():
        counted = Finding("silenced-findings", Severity.NOTE, text, first, about=())
        yield _of_finding(counted, report, context)


def lines(remark: Remark, context: Context) -> Iterator[str]:
    """Yield what the remark says, line by line, with its own place where its anchor stands for another one."""
    yield remark.message
    yield from (f"{name}: {value}" for name, value in remark.details)
    if not remark.anchor.exact or remark.anchor.outside:
        yield f"at {place(remark.location, context.root)} {remark.location.pointer}".rstrip()


def prints_of_files(remarks: Sequence[Remark]) -> Sequence[str]:
    """Return the print of each remark, numbered among its equals in the same file."""
    return [name.rpartition("\0")[2] for name in numbered(f"{remark.anchor.path}\0{remark.identity}" for remark in remarks)]


def _of_problem(problem: Problem, context: Context) -> Remark:
    rule, error = "unreadable-input", Severity.ERROR
    identity = fingerprint(Finding(rule, error, "", problem.location))
    details = (("help", problem.help),) if problem.help else ()
    at = problem_anchor(problem, context)
    return Remark(rule, error, error, rule, problem.message, problem.location, at, identity, details)


def _of_finding(finding: Finding, report: Report, context: Context) -> Remark:
    return Remark(
        finding.rule,
        finding.severity,
        published(finding.severity, context.fail_on),
        finding.rule,
        finding.message,
        finding.location,
        finding_anchor(finding, report, context),
        fingerprint(finding),
        (("help", finding.help),) if finding.help else (),
        finding.related,
        finding.ranks,
        _flow(finding),
        finding.fixes,
    )


def _of_verdict(verdict: Verdict, report: Report, context: Context) -> Iterator[Remark]:
    pair = pair_of(verdict, context)
    if not verdict.reasons:
        refuted, at = verdict.outcome is Outcome.REFUTED, Location(verdict.parallel)
        yield Remark(
            "refuted-proof" if refuted else "unknown-proof",
            *_severities(refuted),
            f"{verdict.outcome.value} proof",
            f"{pair}: the proof is {verdict.outcome.value}",
            at,
            verdict_anchor(verdict, report, context),
            reason_fingerprint(Reason(verdict.outcome.value, refuted, "", at)),
        )
    for reason in verdict.reasons:
        facts = (
            ("proof", pair),
            ("operator", reason.operator),
            ("expected", reason.expected),
            ("actual", reason.actual),
            ("repair", reason.repair),
        )
        yield Remark(
            reason.name,
            *_severities(reason.refutes),
            f"{'refuted' if reason.refutes else 'unknown'} proof: {reason.name}",
            reason.message,
            reason.location,
            reason_anchor(reason, verdict, report, context),
            reason_fingerprint(reason),
            tuple((name, value) for name, value in facts if value),
            reason.related,
            reason.ranks,
            _flow(reason),
        )


def pair_of(verdict: Verdict, context: Context) -> str:
    """Return which plan is proved against which."""
    root = repository(context)
    return f"{relative(verdict.parallel, root)} against {relative(verdict.reference, root)}"


def _severities(refuted: bool) -> tuple[Severity, Severity]:
    severity = Severity.ERROR if refuted else Severity.WARNING
    return severity, severity


def _flow(item: Finding | Reason) -> tuple[Related, ...]:
    """Return the places by way of which the wrong value comes, and then that of the finding; nothing where none is known."""
    led = tuple(related for related in item.related if related.leads)
    return (*led, Related(item.message, item.location)) if led else ()
