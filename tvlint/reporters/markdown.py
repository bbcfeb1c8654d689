"""`markdown`: the report for a pull request comment or the summary of a workflow step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tvlint.findings import Finding, Outcome, Problem, Reason, Report, Severity, Verdict
from tvlint.ir.location import Location
from tvlint.ir.mesh import Mesh
from tvlint.reporters.comparisons import markdown_of
from tvlint.reporters.context import Context
from tvlint.reporters.excerpt import Excerpts, excerpts
from tvlint.reporters.markdown_words import code, entities, escaped
from tvlint.reporters.paths import place, relative
from tvlint.reporters.ranks import describe, meshes
from tvlint.reporters.tally import by_severity, bytes_text, counted, seconds_text, summary

COMMENT_BYTES = 65_000
"""A pull request comment holds 65,536 characters."""

_SEVERITY = {Severity.ERROR: "❌", Severity.WARNING: "⚠️", Severity.NOTE: "💬"}
_OUTCOME = {Outcome.PROVED: "✅", Outcome.REFUTED: "❌", Outcome.UNKNOWN: "❔"}


def write(report: Report, context: Context) -> str:
    """As many blocks as fit into a comment, the worst first, and a line that counts those left out."""
    blocks = list(_blocks(report, context))
    head = f"## tvlint: {escaped(summary(report))}\n"
    room = COMMENT_BYTES - len(head.encode()) - 100
    kept = []
    for block in blocks:
        room -= len(block.encode("utf-8")) + 1
        if room < 0:
            break
        kept.append(block)
    left_out = len(blocks) - len(kept)
    if left_out:
        kept.append(f"\n_{counted(left_out, 'remark')} more; the whole report is in the log._\n")
    return "\n".join([head, *kept])


def _blocks(report: Report, context: Context) -> Iterator[str]:
    show = excerpts(report, context, 120)
    mesh = meshes(report)
    for problem in report.problems:
        yield _problem(problem, context, show)
    for outcome in (Outcome.REFUTED, Outcome.UNKNOWN):
        for verdict in report.verdicts:
            if verdict.outcome is outcome:
                yield _verdict(verdict, context, show, mesh)
    for comparison in report.comparisons:
        yield markdown_of(comparison, context)
    for finding in by_severity(report.findings):
        yield _finding(finding, context, show, mesh)
    for verdict in report.verdicts:
        if verdict.outcome is Outcome.PROVED:
            yield _verdict(verdict, context, show, mesh)
    if context.show_unknown and report.not_evaluated:
        items = [f"- {code(item.rule)}: {escaped(item.reason)}" for item in report.not_evaluated]
        title = counted(len({item.rule for item in report.not_evaluated}), "rule")
        yield "\n".join([f"<details><summary>{title} not evaluated</summary>\n", *items, "\n</details>\n"])


def _problem(problem: Problem, context: Context, show: Excerpts) -> str:
    head = f"❌ **{_at(problem.location, context)}** {escaped(problem.message)}\n"
    return "\n".join([head, *_source(problem.location, show), *_line("help", problem.help)])


def _finding(finding: Finding, context: Context, show: Excerpts, mesh: Callable[[str], Mesh | None]) -> str:
    where = [escaped(finding.location.pointer), describe(finding.ranks, mesh(finding.location.path))]
    rows = [
        f"{_SEVERITY[finding.severity]} **{_at(finding.location, context)}** {escaped(finding.message)} "
        f"[{code(finding.rule)}]\n",
        *_source(finding.location, show),
        *_line("at", ", ".join(part for part in where if part), ready=True),
    ]
    for related in finding.related:
        rows.append(f"{_at(related.location, context)} {escaped(related.message)}\n")
        rows += _source(related.location, show)
    return "\n".join([*rows, *_line("help", finding.help)])


def _verdict(verdict: Verdict, context: Context, show: Excerpts, mesh: Callable[[str], Mesh | None]) -> str:
    parallel, reference = (code(relative(path, context.root)) for path in (verdict.parallel, verdict.reference))
    stages = verdict.stages
    cost = [seconds_text(verdict.seconds)] + ([bytes_text(verdict.peak_bytes)] if verdict.peak_bytes else [])
    rows = [
        f"### {_OUTCOME[verdict.outcome]} {verdict.outcome.value}: {parallel} against {reference}\n",
        "| proof stages | classes | proved | refuted | unknown | cost |",
        "|--:|--:|--:|--:|--:|---|",
        f"| {stages.total} | {stages.classes} | {stages.proved} | {stages.refuted} | {stages.unknown} | {', '.join(cost)} |\n",
    ]
    for reason in verdict.reasons:
        rows.append(_reason(reason, context, show, mesh(verdict.parallel)))
    if verdict.assumptions:
        listed = [f"- {escaped(assumption)}" for assumption in verdict.assumptions]
        title = f"<details><summary>{counted(len(listed), 'assumption')}</summary>\n"
        rows.append("\n".join([title, *listed, "\n</details>\n"]))
    return "\n".join(rows)


def _reason(reason: Reason, context: Context, show: Excerpts, mesh: Mesh | None) -> str:
    kind = "Defect" if reason.refutes else "Gap"
    rows = [
        f"**{kind}:** {escaped(reason.message)} [{code(reason.name)}]\n",
        *_source(reason.location, show),
        "| | |",
        "|---|---|",
    ]
    facts = (
        ("place", _at(reason.location, context)),
        ("in the plan", escaped(reason.location.pointer)),
        ("on", describe(reason.ranks, mesh)),
        ("operator", code(reason.operator) if reason.operator else ""),
        ("expected", escaped(reason.expected)),
        ("actual", escaped(reason.actual)),
        ("repair", escaped(reason.repair)),
        *((escaped(related.message), _at(related.location, context)) for related in reason.related),
    )
    return "\n".join([*rows, *(f"| {name} | {value} |" for name, value in facts if value), ""])


def _at(location: Location, context: Context) -> str:
    return code(place(location, context.root))


def _source(location: Location, show: Excerpts) -> list[str]:
    excerpt = show(location)
    if excerpt is None:
        return []
    number = "" if excerpt.line is None else str(excerpt.line)
    lines = [f"{number:>4} | {excerpt.text.rstrip()}"]
    if excerpt.length:
        lines.append(f"     | {' ' * excerpt.start}{'^' * excerpt.length}")
    return [f"<pre>{chr(10).join(entities(line) for line in lines)}</pre>\n"]


def _line(name: str, text: str, ready: bool = False) -> list[str]:
    return [f"{name}: {text if ready else escaped(text)}\n"] if text else []
