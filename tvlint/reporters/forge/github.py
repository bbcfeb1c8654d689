"""`github`: the report for the log of a GitHub workflow, with its worst remarks as annotations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvlint.findings import Outcome, Report, Severity
from tvlint.reporters.context import Context
from tvlint.reporters.escape.escaped import Escaped, joined
from tvlint.reporters.escape.workflow import Annotation, Level, Properties, annotation, folded
from tvlint.reporters.forge.anchor import Anchor, finding_anchor, problem_anchor, reason_anchor, verdict_anchor
from tvlint.reporters.text import report as text
from tvlint.reporters.text.paths import place, relative
from tvlint.reporters.text.totals import by_severity, counted, published, summary

SHOWN = 10
"""GitHub shows so many annotations of each kind a step and drops the rest without a word."""

_LEVEL: dict[Severity, Level] = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


@dataclass(frozen=True, slots=True)
class _Remark:
    severity: Severity
    title: str
    message: tuple[str, ...]
    anchor: Anchor


def write(report: Report, context: Context) -> Escaped:
    """The text report, folded and with commands switched off, then at most `SHOWN` annotations of each severity."""
    log = text.write(report, replace(context, color=False))
    remarks = list(_annotations(report, context))
    shown = (each for severity in Severity for each in _limited([one for one in remarks if one.severity is severity], severity))
    return joined((folded(f"tvlint: {summary(report)}", log), *map(annotation, shown)))


def _limited(remarks: list[_Remark], severity: Severity) -> Iterator[Annotation]:
    shown = remarks if len(remarks) <= SHOWN else remarks[: SHOWN - 1]
    for remark in shown:
        yield Annotation(_LEVEL[severity], remark.message, (*_where(remark.anchor), ("title", remark.title)))
    rest = remarks[len(shown) :]
    if rest:
        message = f"{counted(len(rest), f'more {severity.value}')}, see the log of this step and its summary"
        yield Annotation(_LEVEL[severity], (message,), (("title", "tvlint"),))


def _annotations(report: Report, context: Context) -> Iterator[_Remark]:
    """Problems, then refuted proofs, then findings from the worst on, then proofs that are not decided."""
    for problem in report.problems:
        lines = (problem.message, *_help(problem.help))
        anchor = problem_anchor(problem, context)
        where = (f"at {place(problem.location, context.root)}",) if anchor.outside else ()
        yield _Remark(Severity.ERROR, "tvlint", (*lines, *where), anchor)
    yield from _verdicts(report, context, Outcome.REFUTED)
    for finding in by_severity(report.findings):
        anchor = finding_anchor(finding, report, context)
        where = (
            ()
            if anchor.exact and not anchor.outside
            else (f"at {place(finding.location, context.root)} {finding.location.pointer}".rstrip(),)
        )
        yield _Remark(
            published(finding.severity, context.fail_on), finding.rule, (finding.message, *where, *_help(finding.help)), anchor
        )
    yield from _verdicts(report, context, Outcome.UNKNOWN)


def _verdicts(report: Report, context: Context, outcome: Outcome) -> Iterator[_Remark]:
    for verdict in report.verdicts:
        if verdict.outcome is not outcome:
            continue
        pair = f"{relative(verdict.parallel, context.root)} against {relative(verdict.reference, context.root)}"
        if not verdict.reasons:
            severity = Severity.ERROR if outcome is Outcome.REFUTED else Severity.WARNING
            yield _Remark(
                severity, f"{outcome.value} proof", (f"{pair}: {outcome.value}",), verdict_anchor(verdict, report, context)
            )
        for reason in verdict.reasons:
            severity = Severity.ERROR if reason.refutes else Severity.WARNING
            named = "refuted" if reason.refutes else "unknown"
            where = f"at {place(reason.location, context.root)} {reason.location.pointer}".rstrip()
            repair = (f"repair: {reason.repair}",) if reason.repair else ()
            lines = (reason.message, f"proof: {pair}", where, *repair)
            yield _Remark(severity, f"{named} proof: {reason.name}", lines, reason_anchor(reason, verdict, report, context))


def _help(help: str) -> tuple[str, ...]:
    return (f"help: {help}",) if help else ()


def _where(anchor: Anchor) -> Properties:
    """Columns only where the place is on one line, else GitHub drops the annotation; no file that is not in the repository."""
    if anchor.outside:
        return ()
    start: Properties = (("file", anchor.path), ("line", anchor.line))
    if anchor.end_line is not None and anchor.end_line != anchor.line:
        return (*start, ("endLine", anchor.end_line))
    if anchor.column is None:
        return start
    return (*start, ("endLine", anchor.line), ("col", anchor.column), ("endColumn", anchor.end_column))
