"""`github`: the report for the log of a GitHub workflow, with its worst remarks as annotations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from os import urandom

from tvlint.findings import Outcome, Report, Severity
from tvlint.reporters import text
from tvlint.reporters.anchor import Anchor, finding_anchor, located, reason_anchor, verdict_anchor
from tvlint.reporters.context import Context
from tvlint.reporters.paths import place, relative
from tvlint.reporters.tally import by_severity, counted, summary
from tvlint.reporters.visible import visible

SHOWN = 10
"""GitHub shows so many annotations of each kind a step and drops the rest without a word."""

_COMMAND = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


@dataclass(frozen=True, slots=True)
class _Annotation:
    severity: Severity
    title: str
    message: tuple[str, ...]
    anchor: Anchor | None


def write(report: Report, context: Context) -> str:
    """The text report, folded and with commands switched off, then at most `SHOWN` annotations of each severity."""
    token = urandom(16).hex()
    human = text.write(report, replace(context, color=False))
    lines = [f"::group::tvlint: {_data(summary(report))}", f"::stop-commands::{token}", human.rstrip("\n"), f"::{token}::"]
    lines.append("::endgroup::")
    annotations = list(_annotations(report, context))
    for severity in Severity:
        lines += _limited([one for one in annotations if one.severity is severity], severity)
    return "\n".join(lines) + "\n"


def _limited(annotations: list[_Annotation], severity: Severity) -> Iterator[str]:
    shown = annotations if len(annotations) <= SHOWN else annotations[: SHOWN - 1]
    for annotation in shown:
        yield _command(annotation)
    rest = annotations[len(shown) :]
    if rest:
        message = f"{counted(len(rest), f'more {severity.value}')}, see the log of this step and its summary"
        yield f"::{_COMMAND[severity]} title=tvlint::{_data(message)}"


def _annotations(report: Report, context: Context) -> Iterator[_Annotation]:
    """Problems, then refuted proofs, then findings from the worst on, then proofs that are not decided."""
    for problem in report.problems:
        lines = (problem.message, *_help(problem.help))
        at = located(problem.location, context)
        where = () if at is not None else (f"at {place(problem.location, context.root)}",)
        yield _Annotation(Severity.ERROR, "tvlint", (*lines, *where), at)
    yield from _verdicts(report, context, Outcome.REFUTED)
    for finding in by_severity(report.findings):
        anchor = finding_anchor(finding, report, context)
        where = () if anchor.exact else (f"at {place(finding.location, context.root)} {finding.location.pointer}".rstrip(),)
        yield _Annotation(finding.severity, finding.rule, (finding.message, *where, *_help(finding.help)), anchor)
    yield from _verdicts(report, context, Outcome.UNKNOWN)


def _verdicts(report: Report, context: Context, outcome: Outcome) -> Iterator[_Annotation]:
    for verdict in report.verdicts:
        if verdict.outcome is not outcome:
            continue
        pair = f"{relative(verdict.parallel, context.root)} against {relative(verdict.reference, context.root)}"
        if not verdict.reasons:
            severity = Severity.ERROR if outcome is Outcome.REFUTED else Severity.WARNING
            yield _Annotation(
                severity, f"{outcome.value} proof", (f"{pair}: {outcome.value}",), verdict_anchor(verdict, context)
            )
        for reason in verdict.reasons:
            severity = Severity.ERROR if reason.refutes else Severity.WARNING
            named = "refuted" if reason.refutes else "unknown"
            where = f"at {place(reason.location, context.root)} {reason.location.pointer}".rstrip()
            repair = (f"repair: {reason.repair}",) if reason.repair else ()
            lines = (reason.message, f"proof: {pair}", where, *repair)
            yield _Annotation(severity, f"{named} proof: {reason.name}", lines, reason_anchor(reason, verdict, context))


def _help(help: str) -> tuple[str, ...]:
    return (f"help: {help}",) if help else ()


def _command(annotation: _Annotation) -> str:
    """One workflow command; columns only where the place is on one line, else GitHub drops the annotation."""
    properties = [*_where(annotation.anchor), ("title", annotation.title)]
    written = ",".join(f"{name}={_property(str(value))}" for name, value in properties if value is not None)
    return f"::{_COMMAND[annotation.severity]} {written}::{'%0A'.join(_data(line) for line in annotation.message)}"


def _where(anchor: Anchor | None) -> list[tuple[str, str | int | None]]:
    if anchor is None:
        return []
    start: list[tuple[str, str | int | None]] = [("file", anchor.path), ("line", anchor.line)]
    if anchor.end_line is not None and anchor.end_line != anchor.line:
        return [*start, ("endLine", anchor.end_line)]
    if anchor.column is None:
        return start
    return [*start, ("endLine", anchor.line), ("col", anchor.column), ("endColumn", anchor.end_column)]


def _data(text: str) -> str:
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
