"""`text`: the report for a person at a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tvlint.findings import Finding, NotEvaluated, Outcome, Problem, Reason, Related, Report, Severity, Verdict
from tvlint.home import page_of
from tvlint.ir.location import Location
from tvlint.ir.values import dataclass
from tvlint.plurals import counted
from tvlint.reporters.context import Context
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.terminal import Line, Span, Style, line, terminal
from tvlint.reporters.escape.visible import display_width, visible
from tvlint.reporters.one_cause import OneCause, common_help, of_equal_edits, of_one_cause
from tvlint.reporters.text.excerpt import Excerpts, excerpts
from tvlint.reporters.text.paths import place, relative
from tvlint.reporters.text.ranks import describe, meshes
from tvlint.reporters.text.totals import (
    SEVERITIES,
    by_place,
    bytes_text,
    coverage_text,
    judged_text,
    recognised_text,
    seconds_text,
    stage_counts,
    summary,
    unevaluated,
)

if TYPE_CHECKING:
    from tvlint.ir.mesh import Mesh

_SEVERITY = {Severity.ERROR: Style.RED, Severity.WARNING: Style.YELLOW, Severity.NOTE: Style.CYAN}
_NOTE = Span("note:", Style.CYAN)
_MAXIMAL_RELATED = 8
"""Related places of one finding that are shown; the formats for programs have all."""
_MAXIMAL_NOTES = 10
"""Notes of one rule that are shown; the other formats have all."""
_OUTCOME = {Outcome.PROVED: Style.GREEN, Outcome.REFUTED: Style.RED, Outcome.UNKNOWN: Style.YELLOW}


@dataclass(frozen=True, slots=True)
class _Screen:
    """The context of the lines: excerpts, and the mesh of a path."""

    context: Context
    excerpts: Excerpts
    mesh: Callable[[str], Mesh | None]


def write(report: Report, context: Context) -> Escaped:
    """Problems, findings, verdicts, then one line of totals; blocks are set apart by an empty line."""
    screen = _Screen(context, excerpts(report, context, max(20, context.width - 10)), meshes(report))
    blocks: list[list[Line]] = [_problem(problem, screen) for problem in report.problems]
    if report.comparisons:
        from tvlint.reporters.text.comparisons import grouped, text_of

        blocks += [text_of(comparison, others, context) for comparison, others in grouped(report.comparisons)]
    if context.statistics:
        blocks += _statistics(report, context)
    else:
        shown, more = _without_many_notes(of_equal_edits(by_place(report.findings), report.comparisons))
        blocks += [_group(group, screen) for group in of_one_cause(shown)]
        blocks += [[line(_NOTE, f" and {counted(number, 'more note')} `{rule}`")] for rule, number in more.items()]
    blocks += [_verdict(verdict, screen) for verdict in report.verdicts]
    if context.show_unknown and report.not_evaluated:
        blocks.append(_not_evaluated(report.not_evaluated, screen))
    apart = [each_line for block in blocks for each_line in (*block, line())]
    if context.quiet:
        return terminal(apart[:-1], context.color)
    totals = [line(text) for text in (recognised_text(report), coverage_text(report), judged_text(report)) if text]
    return terminal([*apart, *totals, _summary(report, screen)], context.color)


def _statistics(report: Report, context: Context) -> Iterator[list[Line]]:
    """Yield how many findings there are of each rule, the worst first, and in each file."""
    rules = Counter((finding.severity, finding.rule) for finding in report.findings)
    files = Counter(relative(finding.location.path, context.root) for finding in report.findings)
    if rules:
        order = sorted(rules, key=lambda row: (SEVERITIES.index(row[0]), -rules[row], row[1]))
        yield [line(f"{rules[row]:>6,}  ", Span(f"{row[0].value:<7}", _SEVERITY[row[0]]), f"  {row[1]}") for row in order]
        yield [line(f"{files[path]:>6,}  {path}") for path in sorted(files, key=lambda path: (-files[path], path))]


def _without_many_notes(findings: Sequence[Finding]) -> tuple[list[Finding], Counter[str]]:
    """Return the findings to show, and how many more notes there are of each rule."""
    seen: Counter[str] = Counter()
    shown = []
    for finding in findings:
        if finding.severity is Severity.NOTE:
            seen[finding.rule] += 1
        if finding.severity is not Severity.NOTE or seen[finding.rule] <= _MAXIMAL_NOTES:
            shown.append(finding)
    return shown, seen - Counter(dict.fromkeys(seen, _MAXIMAL_NOTES))


def _summary(report: Report, screen: _Screen) -> Line:
    severities = {finding.severity for finding in report.findings}
    outcomes = {verdict.outcome for verdict in report.verdicts}
    if report.problems or Severity.ERROR in severities or Outcome.REFUTED in outcomes:
        style = Style.RED
    elif Severity.WARNING in severities or Outcome.UNKNOWN in outcomes:
        style = Style.YELLOW
    else:
        style = Style.GREEN
    hint = " (`--show-unknown` lists them)" if report.not_evaluated and not screen.context.show_unknown else ""
    return line(Span(summary(report), style), hint)


def _problem(problem: Problem, screen: _Screen) -> list[Line]:
    head = line(_place(problem.location, screen), " ", Span("error:", Style.RED), " ", Span(problem.message, Style.BOLD))
    return [head, *_source(problem.location, screen, Style.RED), *_help(problem.help, screen)]


def _finding(finding: Finding, screen: _Screen) -> list[Line]:
    style = _SEVERITY[finding.severity]
    said = (Span(f"{finding.severity.value}:", style), " ", Span(finding.message, Style.BOLD))
    return [
        line(_place(finding.location, screen), " ", *said, " ", _name(finding.rule, screen)),
        *_source(finding.location, screen, style),
        *_where(finding.location, finding.ranks, screen.mesh(finding.location.path)),
        *_shown_by(finding, screen),
        *_related(finding.related, screen),
        *_help(finding.help, screen),
    ]


def _group(cause: OneCause, screen: _Screen) -> list[Line]:
    """Return the lines of findings of one cause: its place and what mends all of them once, and what is wrong one by one."""
    first, at = cause.findings[0], cause.location
    if len(cause.findings) == 1:
        return _finding(first, screen)
    style = _SEVERITY[first.severity]
    head = Span(f"{len(cause.findings)} mistakes of one cause", Style.BOLD)
    lines = [line(_place(at, screen), " ", Span(f"{first.severity.value}:", style), " ", head)]
    lines += [*_source(at, screen, style), *_where(at, first.ranks, screen.mesh(at.path)), *_shown_by(first, screen)]
    for finding in cause.findings:
        lines.append(line("  - ", Span(finding.message, Style.BOLD), " ", _name(finding.rule, screen)))
        if (apart := cause.apart(finding)) is not None:
            lines.append(line("    ", Span("at:", Style.DIM), f" {place(apart, screen.context.root)}"))
        for other in finding.related[:1] if apart is None else ():
            lines.append(line(f"    {place(other.location, screen.context.root)}: ", _NOTE, f" {other.message}"))
    return lines + _help(common_help(cause.findings), screen)


def _name(rule: str, screen: _Screen) -> Span:
    """Return the name of a rule, which leads to its page."""
    known = screen.context.rules.get(rule) if screen.context.links else None
    return Span(f"[{rule}]", Style.DIM, page_of(known, screen.context.version) if known is not None else "")


def _shown_by(finding: Finding, screen: _Screen) -> Iterator[Line]:
    """Yield the script that reads the file of the finding, which others read too."""
    if finding.found_in and not finding.ranks:
        yield line("  ", Span("in:", Style.DIM), f" {relative(finding.found_in, screen.context.root)}")


def _place(location: Location, screen: _Screen) -> Span:
    return Span(f"{place(location, screen.context.root)}:", Style.BOLD)


def _source(location: Location, screen: _Screen, style: Style, indent: str = "  ") -> Iterator[Line]:
    """Yield the source line behind a gutter with its number, and carets under the span."""
    excerpt = screen.excerpts(location)
    if excerpt is None:
        return
    number = "" if excerpt.line is None else str(excerpt.line)
    yield line(indent, Span(f"{number:>4} |", Style.DIM), f" {excerpt.text.rstrip()}")
    if excerpt.length:
        yield line(indent, Span("     |", Style.DIM), " " * (excerpt.start + 1), Span("^" * excerpt.length, style))


def _where(location: Location, ranks: Sequence[int], mesh: Mesh | None) -> Iterator[Line]:
    parts = [part for part in (location.pointer, describe(ranks, mesh)) if part]
    if parts:
        yield line("  ", Span("at:", Style.DIM), f" {', '.join(parts)}")


def _related(related: Sequence[Related], screen: _Screen, indent: str = "  ") -> Iterator[Line]:
    for other in related[:_MAXIMAL_RELATED]:
        yield line(f"{indent}{place(other.location, screen.context.root)}: ", _NOTE, f" {other.message}")
        yield from _source(other.location, screen, Style.CYAN, indent)
    if len(related) > _MAXIMAL_RELATED:
        yield line(indent, _NOTE, f" and {counted(len(related) - _MAXIMAL_RELATED, 'more place')}")


def _help(text: str, screen: _Screen) -> list[Line]:
    return _labelled("help:", text, screen, "  ") if text else []


def _labelled(label: str, text: str, screen: _Screen, indent: str) -> list[Line]:
    """`label text`, folded to the width with the continuation under the text."""
    lead = len(indent) + display_width(label) + 1
    first, *others = _folded(text, screen.context.width - lead)
    return [line(indent, Span(label, Style.DIM), f" {first}"), *(line(" " * lead + other) for other in others)]


def _folded(text: str, width: int) -> list[str]:
    from textwrap import wrap

    return wrap(visible(text), max(30, width), break_long_words=False, break_on_hyphens=False) or [""]


def _verdict(verdict: Verdict, screen: _Screen) -> list[Line]:
    parallel, reference = (relative(path, screen.context.root) for path in (verdict.parallel, verdict.reference))
    says = {
        Outcome.PROVED: f"{parallel} {verdict.claim} {reference}",
        Outcome.REFUTED: f"{parallel} {verdict.denial} {reference}",
        Outcome.UNKNOWN: f"whether {parallel} {verdict.claim} {reference} is not decided",
    }[verdict.outcome]
    head = line(Span(f"{verdict.outcome.value}:", _OUTCOME[verdict.outcome]), " ", Span(says, Style.BOLD))
    lines = [head, line(f"  {_counts(verdict)}")]
    if verdict.facts:
        facts = ", ".join(f"{name} {value}" for name, value in verdict.facts)
        lines += [line(f"  {folded}") for folded in _folded(facts, screen.context.width - 2)]
    mesh = screen.mesh(verdict.parallel)
    for reason in verdict.reasons:
        lines += [line(), *_reason(reason, mesh, screen)]
    if verdict.assumptions:
        lines += [line(), line("  ", Span("assumed:", Style.DIM))]
        for assumption in verdict.assumptions:
            lines += _labelled("-", assumption, screen, "    ")
    return lines


def _counts(verdict: Verdict) -> str:
    cost = [seconds_text(verdict.seconds)] if verdict.seconds else []
    cost += [bytes_text(verdict.peak_bytes)] if verdict.peak_bytes else []
    text = stage_counts(verdict.stages)
    return f"{text}; {', '.join(cost)}" if cost else text


def _reason(reason: Reason, mesh: Mesh | None, screen: _Screen) -> list[Line]:
    style = Style.RED if reason.refutes else Style.YELLOW
    label = Span("defect:" if reason.refutes else "gap:", style)
    lines = [line("  ", label, " ", Span(reason.message, Style.BOLD), " ", _name(reason.name, screen))]
    lines.append(line("    ", Span("-->", Style.DIM), f" {place(reason.location, screen.context.root)}"))
    lines += _source(reason.location, screen, style, "    ")
    parts = [part for part in (reason.location.pointer, describe(reason.ranks, mesh)) if part]
    rows = (
        ("operator:", f"`{reason.operator}`" if reason.operator else ""),
        ("at:", ", ".join(parts)),
        ("expected:", reason.expected),
        ("actual:", reason.actual),
        ("repair:", reason.repair),
    )
    for name, value in rows:
        if value:
            lines += _labelled(f"{name:<9}", value, screen, "    ")
    return lines + list(_related(reason.related, screen, "    "))


def _not_evaluated(items: Sequence[NotEvaluated], screen: _Screen) -> list[Line]:
    lines = [line(Span(f"{unevaluated(items)}:", Style.BOLD))]
    at: dict[str, dict[str, list[str]]] = {}
    for item in items:
        where = place(item.location, screen.context.root)
        at.setdefault(where, {}).setdefault(item.reason, []).append(item.rule)
    for where, reasons in at.items():
        lines.append(line("  ", Span(f"{where}:", Style.BOLD)))
        for reason, rules in reasons.items():
            lines += [line(f"    {reason}"), *_labelled("rules:", ", ".join(dict.fromkeys(rules)), screen, "      ")]
    return lines
