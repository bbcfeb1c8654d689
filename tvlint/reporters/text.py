"""`text`: the report for a person at a terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from tvlint.findings import Finding, NotEvaluated, Outcome, Problem, Reason, Related, Report, Severity, Verdict
from tvlint.ir.location import Location
from tvlint.ir.mesh import Mesh
from tvlint.reporters.comparisons import text_of
from tvlint.reporters.context import Context
from tvlint.reporters.excerpt import Excerpts, excerpts
from tvlint.reporters.paths import place, relative
from tvlint.reporters.ranks import describe, meshes
from tvlint.reporters.tally import by_place, bytes_text, counted, seconds_text, summary
from tvlint.reporters.visible import display_width, visible

_RED, _YELLOW, _GREEN, _BLUE, _BOLD, _DIM = "1;31", "1;33", "1;32", "1;36", "1", "2"
_COMMAND = re.compile("^( *)::", re.MULTILINE)
"""What a GitHub runner takes for a command: folding may put linted text at the start of a line."""
_SEVERITY = {Severity.ERROR: _RED, Severity.WARNING: _YELLOW, Severity.NOTE: _BLUE}
_MAXIMAL_RELATED = 8
"""Related places of one finding that are shown; the formats for programs have all."""
_MAXIMAL_NOTES = 10
"""Notes of one rule that are shown; the other formats have all."""
_OUTCOME = {Outcome.PROVED: _GREEN, Outcome.REFUTED: _RED, Outcome.UNKNOWN: _YELLOW}


@dataclass(frozen=True, slots=True)
class _Screen:
    """How to paint: the context, the excerpts and the mesh of a path."""

    context: Context
    excerpts: Excerpts
    mesh: Callable[[str], Mesh | None]

    def paint(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.context.color and text else text


def write(report: Report, context: Context) -> str:
    """Problems, findings, verdicts, then one line of totals; blocks are set apart by an empty line."""
    screen = _Screen(context, excerpts(report, context, max(20, context.width - 10)), meshes(report))
    blocks = [_problem(problem, screen) for problem in report.problems]
    blocks += [text_of(comparison, context, screen.paint) for comparison in report.comparisons]
    shown, more = _without_many_notes(by_place(report.findings))
    blocks += [_finding(finding, screen) for finding in shown]
    blocks += [[f"{screen.paint(_BLUE, 'note:')} and {counted(number, 'more note')} `{rule}`"] for rule, number in more.items()]
    blocks += [_verdict(verdict, screen) for verdict in report.verdicts]
    if context.show_unknown and report.not_evaluated:
        blocks.append(_not_evaluated(report.not_evaluated, screen))
    text = "\n\n".join("\n".join(block) for block in [*blocks, [_summary(report, screen)]])
    return _COMMAND.sub(r"\1:\\x3a", text) + "\n"


def _without_many_notes(findings: Sequence[Finding]) -> tuple[list[Finding], Counter[str]]:
    """The findings to show, and how many more notes there are of each rule."""
    seen: Counter[str] = Counter()
    shown = []
    for finding in findings:
        if finding.severity is Severity.NOTE:
            seen[visible(finding.rule)] += 1
        if finding.severity is not Severity.NOTE or seen[visible(finding.rule)] <= _MAXIMAL_NOTES:
            shown.append(finding)
    return shown, seen - Counter(dict.fromkeys(seen, _MAXIMAL_NOTES))


def _summary(report: Report, screen: _Screen) -> str:
    severities = {finding.severity for finding in report.findings}
    outcomes = {verdict.outcome for verdict in report.verdicts}
    if report.problems or Severity.ERROR in severities or Outcome.REFUTED in outcomes:
        style = _RED
    elif Severity.WARNING in severities or Outcome.UNKNOWN in outcomes:
        style = _YELLOW
    else:
        style = _GREEN
    hint = " (`--show-unknown` lists them)" if report.not_evaluated and not screen.context.show_unknown else ""
    return screen.paint(style, summary(report)) + hint


def _problem(problem: Problem, screen: _Screen) -> list[str]:
    head = f"{_place(problem.location, screen)} {screen.paint(_RED, 'error:')} {screen.paint(_BOLD, visible(problem.message))}"
    return [head, *_source(problem.location, screen, _RED), *_help(problem.help, screen)]


def _finding(finding: Finding, screen: _Screen) -> list[str]:
    style = _SEVERITY[finding.severity]
    return [
        f"{_place(finding.location, screen)} {screen.paint(style, finding.severity.value + ':')} "
        f"{screen.paint(_BOLD, visible(finding.message))} {screen.paint(_DIM, f'[{visible(finding.rule)}]')}",
        *_source(finding.location, screen, style),
        *_where(finding.location, finding.ranks, screen.mesh(finding.location.path), screen),
        *_related(finding.related, screen),
        *_help(finding.help, screen),
    ]


def _place(location: Location, screen: _Screen) -> str:
    return screen.paint(_BOLD, visible(place(location, screen.context.root)) + ":")


def _source(location: Location, screen: _Screen, style: str, indent: str = "  ") -> Iterator[str]:
    """The source line behind a gutter with its number, and carets under the span."""
    excerpt = screen.excerpts(location)
    if excerpt is None:
        return
    number = "" if excerpt.line is None else str(excerpt.line)
    yield f"{indent}{screen.paint(_DIM, f'{number:>4} |')} {excerpt.text.rstrip()}"
    if excerpt.length:
        yield f"{indent}{screen.paint(_DIM, '     |')} {' ' * excerpt.start}{screen.paint(style, '^' * excerpt.length)}"


def _where(location: Location, ranks: Sequence[int], mesh: Mesh | None, screen: _Screen, indent: str = "  ") -> Iterator[str]:
    parts = [part for part in (visible(location.pointer), describe(ranks, mesh)) if part]
    if parts:
        yield f"{indent}{screen.paint(_DIM, 'at:')} {', '.join(parts)}"


def _related(related: Sequence[Related], screen: _Screen, indent: str = "  ") -> Iterator[str]:
    for other in related[:_MAXIMAL_RELATED]:
        where = visible(place(other.location, screen.context.root))
        yield f"{indent}{where}: {screen.paint(_BLUE, 'note:')} {visible(other.message)}"
        yield from _source(other.location, screen, _BLUE, indent)
    if len(related) > _MAXIMAL_RELATED:
        yield f"{indent}{screen.paint(_BLUE, 'note:')} and {counted(len(related) - _MAXIMAL_RELATED, 'more place')}"


def _help(text: str, screen: _Screen, indent: str = "  ") -> list[str]:
    return _labelled("help:", text, screen, indent) if text else []


def _labelled(label: str, text: str, screen: _Screen, indent: str) -> list[str]:
    """`label text`, folded to the width with the continuation under the text."""
    lead = len(indent) + display_width(label) + 1
    lines = _folded(text, screen.context.width - lead)
    return [f"{indent}{screen.paint(_DIM, label)} {lines[0]}", *(" " * lead + line for line in lines[1:])]


def _folded(text: str, width: int) -> list[str]:
    return wrap(visible(text), max(30, width), break_long_words=False, break_on_hyphens=False) or [""]


def _verdict(verdict: Verdict, screen: _Screen) -> list[str]:
    style = _OUTCOME[verdict.outcome]
    parallel, reference = (visible(relative(path, screen.context.root)) for path in (verdict.parallel, verdict.reference))
    says = {
        Outcome.PROVED: f"{parallel} trains the same model as {reference}",
        Outcome.REFUTED: f"{parallel} does not train the same model as {reference}",
        Outcome.UNKNOWN: f"whether {parallel} trains the same model as {reference} is not decided",
    }[verdict.outcome]
    lines = [f"{screen.paint(style, verdict.outcome.value + ':')} {screen.paint(_BOLD, says)}", f"  {_counts(verdict)}"]
    if verdict.facts:
        facts = ", ".join(f"{name} {value}" for name, value in verdict.facts)
        lines += [f"  {line}" for line in _folded(facts, screen.context.width - 2)]
    mesh = screen.mesh(verdict.parallel)
    for reason in verdict.reasons:
        lines += ["", *_reason(reason, mesh, screen)]
    if verdict.assumptions:
        lines += ["", f"  {screen.paint(_DIM, 'assumed:')}"]
        for assumption in verdict.assumptions:
            lines += _labelled("-", assumption, screen, "    ")
    return lines


def _counts(verdict: Verdict) -> str:
    stages = verdict.stages
    counts = ((stages.proved, "proved"), (stages.refuted, "refuted"), (stages.unknown, "unknown"))
    parts = [f"{number:,} {name}" for number, name in counts if number]
    cost = [seconds_text(verdict.seconds)] if verdict.seconds else []
    cost += [bytes_text(verdict.peak_bytes)] if verdict.peak_bytes else []
    text = f"{counted(stages.total, 'proof stage')} in {counted(stages.classes, 'class')}"
    text += f": {', '.join(parts)}" if parts else ""
    return f"{text}; {', '.join(cost)}" if cost else text


def _reason(reason: Reason, mesh: Mesh | None, screen: _Screen) -> list[str]:
    style = _RED if reason.refutes else _YELLOW
    label = "defect:" if reason.refutes else "gap:"
    head = f"  {screen.paint(style, label)} {screen.paint(_BOLD, visible(reason.message))}"
    lines = [f"{head} {screen.paint(_DIM, f'[{visible(reason.name)}]')}"]
    where = visible(place(reason.location, screen.context.root))
    lines.append(f"    {screen.paint(_DIM, '-->')} {where}")
    lines += _source(reason.location, screen, style, "    ")
    parts = [part for part in (visible(reason.location.pointer), describe(reason.ranks, mesh)) if part]
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


def _not_evaluated(items: Sequence[NotEvaluated], screen: _Screen) -> list[str]:
    lines = [screen.paint(_BOLD, f"{counted(len({item.rule for item in items}), 'rule')} not evaluated:")]
    at: dict[str, dict[str, list[str]]] = {}
    for item in items:
        where = visible(place(item.location, screen.context.root))
        at.setdefault(where, {}).setdefault(visible(item.reason), []).append(item.rule)
    for where, reasons in at.items():
        lines.append(f"  {screen.paint(_BOLD, where + ':')}")
        for reason, rules in reasons.items():
            lines += [f"    {reason}", *_labelled("rules:", ", ".join(dict.fromkeys(rules)), screen, "      ")]
    return lines
