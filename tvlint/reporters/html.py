"""`html`: one self-contained page: proofs and their defects, findings, mesh and schedule. No script, nothing loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from tvlint.findings import Comparison, Difference, Finding, Outcome, Problem, Reason, Related, Report, Severity, Verdict
from tvlint.ir.location import Location
from tvlint.ir.mesh import Mesh
from tvlint.ir.outline import Outline
from tvlint.reporters.context import Context
from tvlint.reporters.excerpt import Excerpts, excerpts
from tvlint.reporters.html_page import code, page, rows, sentence, words
from tvlint.reporters.html_plan import mesh_drawing, schedule_drawing
from tvlint.reporters.html_scene import scene_drawing
from tvlint.reporters.paths import place, relative
from tvlint.reporters.ranks import describe, meshes
from tvlint.reporters.tally import by_severity, bytes_text, counted, seconds_text, summary
from tvlint.reporters.visible import display_width

_OUTCOME = {Outcome.REFUTED: "bad", Outcome.UNKNOWN: "doubt", Outcome.PROVED: "good"}
_SEVERITY = {Severity.ERROR: "bad", Severity.WARNING: "doubt", Severity.NOTE: "note"}


def write(report: Report, context: Context) -> str:
    """A page that needs neither server nor network and runs nothing."""
    show = excerpts(report, context, 140)
    mesh = meshes(report)
    verdicts = [verdict for outcome in _OUTCOME for verdict in report.verdicts if verdict.outcome is outcome]
    sections = (
        ("Not readable", [_problem(problem, context, show) for problem in report.problems]),
        ("Proofs", [_verdict(verdict, context, show, mesh(verdict.parallel)) for verdict in verdicts]),
        ("Changes", [_comparison(comparison, context) for comparison in report.comparisons]),
        ("Findings", [_finding(finding, context, show, mesh) for finding in by_severity(report.findings)]),
        ("Not evaluated", _not_evaluated(report, context)),
        ("Plans", [_plan(outline, report, context) for outline in report.outlines]),
    )
    body = "\n".join(f"<h2>{title}</h2>\n{chr(10).join(blocks)}" for title, blocks in sections if blocks)
    return page("tvlint", summary(report), body, context.version)


def _problem(problem: Problem, context: Context, show: Excerpts) -> str:
    source = _source(problem.location, show)
    return (
        f'<article class="bad"><h3>{sentence(problem.message)}</h3>{_at(problem.location, context)}{source}'
        f"{rows((('help', sentence(problem.help)),))}</article>"
    )


def _finding(finding: Finding, context: Context, show: Excerpts, mesh: Callable[[str], Mesh | None]) -> str:
    facts = (
        ("in the plan", words(finding.location.pointer)),
        ("on", words(describe(finding.ranks, mesh(finding.location.path)))),
        ("help", sentence(finding.help)),
    )
    return (
        f'<article class="{_SEVERITY[finding.severity]}"><h3><span class="badge">{finding.severity.value}</span>'
        f'{sentence(finding.message)} <span class="rule">{code(finding.rule)}</span></h3>'
        f"{_at(finding.location, context)}{_source(finding.location, show)}{_related(finding.related, context, show)}"
        f"{rows(facts)}</article>"
    )


def _verdict(verdict: Verdict, context: Context, show: Excerpts, mesh: Mesh | None) -> str:
    parallel, reference = (code(relative(path, context.root)) for path in (verdict.parallel, verdict.reference))
    says = {
        Outcome.PROVED: f"{parallel} trains the same model as {reference}",
        Outcome.REFUTED: f"{parallel} does not train the same model as {reference}",
        Outcome.UNKNOWN: f"it is not decided whether {parallel} trains the same model as {reference}",
    }[verdict.outcome]
    reasons = "".join(_reason(reason, context, show, mesh) for reason in verdict.reasons)
    facts = rows(tuple((words(name), words(value)) for name, value in verdict.facts))
    return (
        f'<article class="{_OUTCOME[verdict.outcome]}"><h3><span class="badge">{verdict.outcome.value}</span>{says}</h3>'
        f"{_stages(verdict)}{facts}{reasons}{_assumptions(verdict.assumptions)}</article>"
    )


def _stages(verdict: Verdict) -> str:
    """The proof stages as a bar of what became of them."""
    stages = verdict.stages
    counts = ((stages.proved, "proved", "good"), (stages.refuted, "refuted", "bad"), (stages.unknown, "unknown", "doubt"))
    bar = "".join(f'<span class="{style}" style="flex:{number}"></span>' for number, _, style in counts if number)
    said = ", ".join(f"{number:,} {name}" for number, name, _ in counts if number)
    cost = [seconds_text(verdict.seconds)] + ([bytes_text(verdict.peak_bytes)] if verdict.peak_bytes else [])
    total = f"{counted(stages.total, 'proof stage')} in {counted(stages.classes, 'class')}"
    return f'<div class="bar">{bar}</div><p class="soft">{total}{": " if said else ""}{said}; {", ".join(cost)}</p>'


def _reason(reason: Reason, context: Context, show: Excerpts, mesh: Mesh | None) -> str:
    kind, style = ("defect", "bad") if reason.refutes else ("gap", "doubt")
    facts = (
        ("operator", code(reason.operator) if reason.operator else ""),
        ("in the plan", words(reason.location.pointer)),
        ("on", words(describe(reason.ranks, mesh))),
    )
    boxes = (("expected", reason.expected, "note"), ("actual", reason.actual, style), ("repair", reason.repair, "good"))
    pair = "".join(f'<div class="{edge}"><b>{name}</b>{sentence(value)}</div>' for name, value, edge in boxes if value)
    pair = f'<div class="pair">{pair}</div>' if pair else ""
    drawing = mesh_drawing(mesh, reason.ranks) if mesh is not None and mesh.size > 1 and reason.ranks else ""
    return (
        f'<article class="{style}"><h4><span class="badge">{kind}</span>{sentence(reason.message)} '
        f'<span class="rule">{code(reason.name)}</span></h4>{_trail(reason, context, show)}{rows(facts)}'
        f"{pair}{scene_drawing(reason.scenes, reason.ranks, mesh)}{drawing}</article>"
    )


def _trail(reason: Reason, context: Context, show: Excerpts) -> str:
    """How the value came about, and where it is first wrong."""
    steps = [
        f"<li>{sentence(related.message)}{_at(related.location, context)}{_source(related.location, show)}</li>"
        for related in reason.related
    ]
    here = f"{_at(reason.location, context)}{_source(reason.location, show)}"
    if not steps:
        return here
    mark = '<span class="first">first wrong value</span>' if reason.refutes else "here"
    return f'<ol class="trail">{"".join(steps)}<li>{mark}{here}</li></ol>'


def _related(related: Sequence[Related], context: Context, show: Excerpts) -> str:
    return "".join(f"<p>{sentence(o.message)}</p>{_at(o.location, context)}{_source(o.location, show)}" for o in related)


def _at(location: Location, context: Context) -> str:
    return f'<div class="soft">{code(place(location, context.root))}</div>'


def _source(location: Location, show: Excerpts) -> str:
    excerpt = show(location)
    if excerpt is None:
        return ""
    number = "" if excerpt.line is None else str(excerpt.line)
    before, span, after = _cut(excerpt.text, excerpt.start, excerpt.length)
    marked = f"{escape(before)}<mark>{escape(span)}</mark>{escape(after)}" if span else escape(excerpt.text)
    return f'<pre><span class="number">{number:>4} | </span>{marked}</pre>'


def _cut(text: str, start: int, length: int) -> tuple[str, str, str]:
    """`text` before, in and after the display columns from `start` on."""
    column = 0
    parts = ["", "", ""]
    for character in text:
        parts[0 if column < start else 1 if column < start + length else 2] += character
        column += display_width(character)
    return parts[0], parts[1], parts[2]


def _assumptions(assumptions: Sequence[str]) -> str:
    if not assumptions:
        return ""
    listed = "".join(f"<li>{sentence(assumption)}</li>" for assumption in assumptions)
    return f"<details open><summary>{counted(len(assumptions), 'assumption')}</summary><ul>{listed}</ul></details>"


def _comparison(comparison: Comparison, context: Context) -> str:
    title = relative(comparison.path, context.root) + (f", {comparison.section}" if comparison.section else "")
    tables = (("written", comparison.written), ("follows from it", comparison.follows))
    lines = "".join(f"<tr><th>{name}</th><th>before</th><th>after</th></tr>{_differences(own)}" for name, own in tables if own)
    return f'<article><h3>{code(title)}</h3><div class="scroll"><table class="change">{lines}</table></div></article>'


def _differences(differences: Sequence[Difference]) -> str:
    cells = ((words(row.name), words(row.before or "not given"), words(row.after or "not given")) for row in differences)
    return "".join(f"<tr><td>{name}</td><td>{before}</td><td>{after}</td></tr>" for name, before, after in cells)


def _not_evaluated(report: Report, context: Context) -> list[str]:
    if not report.not_evaluated:
        return []
    listed = "".join(
        f"<li>{code(item.rule)} at {code(place(item.location, context.root))}: {sentence(item.reason)}</li>"
        for item in report.not_evaluated
    )
    return [f"<article><ul>{listed}</ul></article>"]


def _plan(outline: Outline, report: Report, context: Context) -> str:
    axes = " × ".join(f"{words(axis.name)} {axis.size}" for axis in outline.mesh.axes) or "1"
    wrong = set(_wrong(report, outline.path))
    marks = '<p class="soft"><span class="key wrong"></span>concerned by a defect or an error</p>' if wrong else ""
    drawing = mesh_drawing(outline.mesh, wrong) if outline.mesh.size > 1 else ""
    timeline = schedule_drawing(outline)
    judged = sorted({cell.judged for lane in outline.lanes for cell in lane.cells if cell.judged})
    keys = "".join(f'<span class="key {style}"></span>{style}' for style in ("forward", "backward", "other", *judged))
    schedule = (
        f'<h4>Schedule</h4><p class="soft">{keys}; {counted(outline.micro_batches, "micro-batch")}; not to scale: a backward '
        f"is drawn twice as long as a forward, all else half as long</p>{timeline}"
        if timeline
        else ""
    )
    return (
        f"<article><h3>{code(relative(outline.path, context.root))}</h3>"
        f"<h4>Mesh: {axes} = {counted(outline.mesh.size, 'rank')}</h4>"
        f"{drawing}{marks}{schedule}</article>"
    )


def _wrong(report: Report, path: str) -> Iterator[int]:
    """The ranks of the plan at `path` that a defect or an error is about."""
    for verdict in report.verdicts:
        if verdict.parallel == path:
            for reason in verdict.reasons:
                yield from reason.ranks if reason.refutes else ()
    for finding in report.findings:
        about = {finding.location.path, *(related.location.path for related in finding.related)}
        if finding.severity is Severity.ERROR and path in about:
            yield from finding.ranks
