"""`concise`: one line a remark, as editors and scripts expect it."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.findings import Outcome, Report, Verdict
from tvlint.ir.location import Location
from tvlint.reporters.context import Context
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.terminal import terminal
from tvlint.reporters.text.paths import relative
from tvlint.reporters.text.totals import assumed, by_place, set_aside, unevaluated

_SEVERITY = {Outcome.PROVED: "note", Outcome.REFUTED: "error", Outcome.UNKNOWN: "warning"}


def write(report: Report, context: Context) -> Escaped:
    """`path:line:col: severity: message [rule]`; a verdict stands at its parallel plan, a place without lines at line 1.

    What a verdict takes for granted is a remark of its own, after it. Rules that could not be judged are remarks where they
    are asked for, else counted in a last line.
    """
    lines = [f"{_place(problem.location, context)}: error: {problem.message}" for problem in report.problems]
    lines += [
        f"{_place(finding.location, context)}: {finding.severity.value}: {finding.message} [{finding.rule}]"
        for finding in by_place(report.findings)
    ]
    for verdict in report.verdicts:
        lines.append(_verdict(verdict, context))
        if verdict.assumptions:
            lines.append(f"{_place(Location(verdict.parallel), context)}: note: {assumed(verdict)}")
    others = [] if context.quiet else [f"note: {text}" for text in set_aside(report)]
    return terminal([*lines, *_not_evaluated(report, context), *others])


def _not_evaluated(report: Report, context: Context) -> Iterator[str]:
    if context.show_unknown:
        for item in report.not_evaluated:
            yield f"{_place(item.location, context)}: note: not evaluated: {item.reason} [{item.rule}]"
    elif report.not_evaluated and not context.quiet:
        yield f"note: {unevaluated(report.not_evaluated, 'could not be evaluated')}; `--show-unknown` lists them"


def _place(location: Location, context: Context) -> str:
    return f"{relative(location.path, context.root)}:{location.line or 1}:{location.column or 1}"


def _verdict(verdict: Verdict, context: Context) -> str:
    reference = relative(verdict.reference, context.root)
    reported = verdict.reasons[0].location if verdict.reasons else Location(verdict.parallel)
    place = reported if reported.path == verdict.parallel and reported.line is not None else Location(verdict.parallel)
    head = f"{_place(place, context)}: {_SEVERITY[verdict.outcome]}: {verdict.outcome.value}"
    if not verdict.reasons:
        return f"{head} against {reference}"
    first, others = verdict.reasons[0], len(verdict.reasons) - 1
    more = f" (and {others} more)" if others else ""
    return f"{head} against {reference}: {first.message}{more} [{first.name}]"
