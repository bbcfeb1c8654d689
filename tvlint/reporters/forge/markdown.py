"""`markdown`: the report for a pull request comment or the summary of a workflow step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tvlint.findings import Finding, Outcome, Problem, Reason, Report, Severity, Verdict
from tvlint.ir.location import Location
from tvlint.ir.mesh import Mesh
from tvlint.plurals import counted
from tvlint.reporters.context import Context
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.markdown import (
    Block,
    Bold,
    Code,
    Details,
    Heading,
    Italic,
    Paragraph,
    Phrase,
    Preformatted,
    Table,
    markdown,
)
from tvlint.reporters.one_cause import OneCause, common_help, of_equal_edits, of_one_cause
from tvlint.reporters.text.comparisons import grouped, markdown_of
from tvlint.reporters.text.excerpt import Excerpts, excerpts
from tvlint.reporters.text.paths import place, relative
from tvlint.reporters.text.ranks import describe, meshes
from tvlint.reporters.text.totals import by_severity, bytes_text, seconds_text, summary, unevaluated

COMMENT_BYTES = 65_000
"""A pull request comment holds 65,536 characters."""

_SEVERITY = {Severity.ERROR: "❌", Severity.WARNING: "⚠️", Severity.NOTE: "💬"}
_OUTCOME = {Outcome.PROVED: "✅", Outcome.REFUTED: "❌", Outcome.UNKNOWN: "❔"}


def write(report: Report, context: Context) -> Escaped:
    """As many remarks as fit into a comment, the worst first, and a line that counts those left out."""
    head = [Heading(2, (f"tvlint: {summary(report)}",))]
    return markdown(*fitting(head, list(remarks(report, context)), COMMENT_BYTES))


def fitting(head: Sequence[Block], remarks: Sequence[tuple[Block, ...]], most: int) -> Sequence[Block]:
    """Return the head and as many remarks as fit into so many bytes, and a line that counts those left out."""
    blocks = list(head)
    room = most - _size(blocks) - 100
    kept = 0
    for remark in remarks:
        room -= _size(remark)
        if room < 0:
            break
        blocks += remark
        kept += 1
    if kept < len(remarks):
        blocks.append(Paragraph((Italic(f"{counted(len(remarks) - kept, 'remark')} more; the whole report is in the log."),)))
    return blocks


def _size(blocks: Sequence[Block]) -> int:
    """The bytes that the blocks take, with the empty line that sets them apart."""
    return len(markdown(*blocks).text.encode("utf-8")) + 1


def remarks(report: Report, context: Context) -> Iterator[tuple[Block, ...]]:
    """Yield the blocks of each remark: what cannot be read, proofs that fail, changes, findings from the worst on, proofs."""
    yield from map(tuple, _remarks(report, context))


def _remarks(report: Report, context: Context) -> Iterator[Iterator[Block] | tuple[Block, ...]]:
    show = excerpts(report, context, 120)
    mesh = meshes(report)
    for problem in report.problems:
        yield _problem(problem, context, show)
    for outcome in (Outcome.REFUTED, Outcome.UNKNOWN):
        for verdict in report.verdicts:
            if verdict.outcome is outcome:
                yield _verdict(verdict, context, show, mesh)
    for comparison, others in grouped(report.comparisons):
        yield markdown_of(comparison, others, context)
    for cause in of_one_cause(of_equal_edits(by_severity(report.findings), report.comparisons)):
        is_one = len(cause.findings) == 1
        yield _finding(cause.findings[0], context, show, mesh) if is_one else _group(cause, context, show, mesh)
    for verdict in report.verdicts:
        if verdict.outcome is Outcome.PROVED:
            yield _verdict(verdict, context, show, mesh)
    if context.show_unknown and report.not_evaluated:
        items = tuple((Code(item.rule), f": {item.reason}") for item in report.not_evaluated)
        yield (Details(unevaluated(report.not_evaluated), items),)


def _problem(problem: Problem, context: Context, show: Excerpts) -> Iterator[Block]:
    yield Paragraph(("❌ ", Bold(_at(problem.location, context)), f" {problem.message}"))
    yield from _source(problem.location, show)
    yield from _line("help", problem.help)


def _finding(finding: Finding, context: Context, show: Excerpts, mesh: Callable[[str], Mesh | None]) -> Iterator[Block]:
    said = (f"{_SEVERITY[finding.severity]} ", Bold(_at(finding.location, context)), f" {finding.message} ")
    yield Paragraph((*said, "[", Code(finding.rule), "]"))
    yield from _source(finding.location, show)
    where = (finding.location.pointer, describe(finding.ranks, mesh(finding.location.path)))
    yield from _line("at", ", ".join(part for part in where if part))
    for related in finding.related:
        yield Paragraph((_at(related.location, context), f" {related.message}"))
        yield from _source(related.location, show)
    yield from _line("help", finding.help)


def _group(cause: OneCause, context: Context, show: Excerpts, mesh: Callable[[str], Mesh | None]) -> Iterator[Block]:
    """Yield findings of one cause: its place and what repairs all of them once, and what is wrong one by one."""
    first, at = cause.findings[0], cause.location
    head = f" {len(cause.findings)} mistakes of one cause"
    yield Paragraph((f"{_SEVERITY[first.severity]} ", Bold(_at(at, context)), head))
    yield from _source(at, show)
    yield from _line("at", ", ".join(part for part in (at.pointer, describe(first.ranks, mesh(at.path))) if part))
    for finding in cause.findings:
        apart = cause.apart(finding)
        others = [(apart, "")] if apart is not None else [(each.location, f" {each.message}") for each in finding.related[:1]]
        places = tuple(part for place, said in others for part in (", ", _at(place, context), said))
        yield Paragraph((f"{finding.message} [", Code(finding.rule), "]", *places))
    yield from _line("help", common_help(cause.findings))


def _verdict(verdict: Verdict, context: Context, show: Excerpts, mesh: Callable[[str], Mesh | None]) -> Iterator[Block]:
    parallel, reference = (Code(relative(path, context.root)) for path in (verdict.parallel, verdict.reference))
    said = f"{_OUTCOME[verdict.outcome]} {verdict.outcome.value}: "
    yield Heading(3, (said, parallel, " against ", reference))
    stages = verdict.stages
    cost = [seconds_text(verdict.seconds)] + ([bytes_text(verdict.peak_bytes)] if verdict.peak_bytes else [])
    counts = (stages.total, stages.classes, stages.proved, stages.refuted, stages.unknown)
    names = ("proof stages", "classes", "proved", "refuted", "unknown")
    cells: tuple[Phrase, ...] = tuple((str(count),) for count in counts)
    if stages.total:
        yield Table((*names, "cost"), ((*cells, (", ".join(cost),)),), names)
    for reason in verdict.reasons:
        yield from _reason(reason, context, show, mesh(verdict.parallel))
    if verdict.assumptions:
        yield Details(counted(len(verdict.assumptions), "assumption"), tuple((text,) for text in verdict.assumptions))


def _reason(reason: Reason, context: Context, show: Excerpts, mesh: Mesh | None) -> Iterator[Block]:
    kind = "Defect" if reason.refutes else "Gap"
    yield Paragraph((Bold(f"{kind}:"), f" {reason.message} [", Code(reason.name), "]"))
    yield from _source(reason.location, show)
    facts: tuple[tuple[str, Phrase], ...] = (
        ("place", (_at(reason.location, context),)),
        ("in the plan", (reason.location.pointer,)),
        ("on", (describe(reason.ranks, mesh),)),
        ("operator", (Code(reason.operator) if reason.operator else "",)),
        ("expected", (reason.expected,)),
        ("actual", (reason.actual,)),
        ("repair", (reason.repair,)),
        *((related.message, (_at(related.location, context),)) for related in reason.related),
    )
    yield Table(("", ""), tuple(((name,), value) for name, value in facts if value != ("",)))


def _at(location: Location, context: Context) -> Code:
    return Code(place(location, context.root))


def _source(location: Location, show: Excerpts) -> Iterator[Block]:
    excerpt = show(location)
    if excerpt is None:
        return
    number = "" if excerpt.line is None else str(excerpt.line)
    lines = [f"{number:>4} | {excerpt.text.rstrip()}"]
    if excerpt.length:
        lines.append(f"     | {' ' * excerpt.start}{'^' * excerpt.length}")
    yield Preformatted(tuple(lines))


def _line(name: str, text: str) -> Iterator[Block]:
    if text:
        yield Paragraph((f"{name}: {text}",))
