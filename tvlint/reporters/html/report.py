"""`html`: one self-contained page: proofs and their defects, findings, mesh and schedule. No script, nothing loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tvlint.findings import Comparison, Difference, Finding, Outcome, Problem, Reason, Related, Report, Severity, Verdict
from tvlint.ir.location import Location
from tvlint.ir.mesh import Mesh
from tvlint.ir.outline import Outline
from tvlint.plurals import counted
from tvlint.reporters.context import Context
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.html import Content, Element, tag
from tvlint.reporters.escape.visible import display_width
from tvlint.reporters.html.defect_svg import scene_drawing
from tvlint.reporters.html.page import code, page, rows, sentence
from tvlint.reporters.html.plan_svg import mesh_drawing, schedule_drawing
from tvlint.reporters.one_cause import OneCause, common_help, of_one_cause
from tvlint.reporters.text.excerpt import Excerpts, excerpts
from tvlint.reporters.text.paths import place, relative
from tvlint.reporters.text.ranks import describe, meshes
from tvlint.reporters.text.totals import by_severity, bytes_text, files_by_need, seconds_text, stage_counts, summary

MOST_FILES = 3
"""Of more files that lack the same thing, only the first are named; the JSON report has all."""
_OUTCOME = {Outcome.REFUTED: "bad", Outcome.UNKNOWN: "doubt", Outcome.PROVED: "good"}
_SEVERITY = {Severity.ERROR: "bad", Severity.WARNING: "doubt", Severity.NOTE: "note"}


def write(report: Report, context: Context) -> Escaped:
    """Return a page that needs neither server nor network and runs nothing."""
    show = excerpts(report, context, 140)
    mesh = meshes(report)
    verdicts = [verdict for outcome in _OUTCOME for verdict in report.verdicts if verdict.outcome is outcome]
    sections: tuple[tuple[str, list[Element]], ...] = (
        ("Not readable", [_problem(problem, context, show) for problem in report.problems]),
        ("Proofs", [_verdict(verdict, context, show, mesh(verdict.parallel)) for verdict in verdicts]),
        ("Changes", [_comparison(comparison, context) for comparison in report.comparisons]),
        ("Findings", [_group(cause, context, show, mesh) for cause in of_one_cause(by_severity(report.findings))]),
        ("Not evaluated", _not_evaluated(report, context)),
        ("Plans", [_plan(outline, report, context) for outline in report.outlines]),
    )
    body = [(tag("h2", title), blocks) for title, blocks in sections if blocks]
    return page("tvlint", summary(report), body, context.version)


def _problem(problem: Problem, context: Context, show: Excerpts) -> Element:
    at, help = _at(problem.location, context), rows((("help", sentence(problem.help)),))
    return tag("article", tag("h3", sentence(problem.message)), at, _source(problem.location, show), help, kind="bad")


def _group(cause: OneCause, context: Context, show: Excerpts, mesh: Callable[[str], Mesh | None]) -> Element:
    """Return findings of one cause: its place and what repairs all of them once, and what is wrong one by one."""
    first, at = cause.findings[0], cause.location
    facts = (
        ("in the plan", at.pointer),
        ("on", describe(first.ranks, mesh(at.path))),
        ("help", sentence(common_help(cause.findings))),
    )
    said = [(sentence(finding.message), " ", _rule(finding.rule)) for finding in cause.findings]
    each = zip(said, cause.findings, strict=True)
    body = tag("ul", [tag("li", what, _apart(cause, finding, context, show)) for what, finding in each])
    is_one = len(said) == 1
    return tag(
        "article",
        tag("h3", _badge(first.severity.value), said[0] if is_one else f"{len(said)} mistakes of one cause"),
        _at(at, context),
        _source(at, show),
        _related(first.related, context, show) if is_one else body,
        rows(facts),
        kind=_SEVERITY[first.severity],
    )


def _apart(cause: OneCause, finding: Finding, context: Context, show: Excerpts) -> Content:
    """Return where a finding stands that is not at the place of its cause, or else the first place that it names."""
    apart = cause.apart(finding)
    return _related(finding.related[:1], context, show) if apart is None else (_at(apart, context), _source(apart, show))


def _badge(text: str) -> Element:
    return tag("span", text, kind="badge")


def _rule(name: str) -> Element:
    return tag("span", code(name), kind="rule")


def _verdict(verdict: Verdict, context: Context, show: Excerpts, mesh: Mesh | None) -> Element:
    parallel, reference = (code(relative(path, context.root)) for path in (verdict.parallel, verdict.reference))
    says: Content = {
        Outcome.PROVED: (parallel, f" {verdict.claim} ", reference),
        Outcome.REFUTED: (parallel, f" {verdict.denial} ", reference),
        Outcome.UNKNOWN: ("it is not decided whether ", parallel, f" {verdict.claim} ", reference),
    }[verdict.outcome]
    return tag(
        "article",
        tag("h3", _badge(verdict.outcome.value), says),
        _stages(verdict),
        rows(verdict.facts),
        [_reason(reason, context, show, mesh) for reason in verdict.reasons],
        _assumptions(verdict.assumptions),
        kind=_OUTCOME[verdict.outcome],
    )


def _stages(verdict: Verdict) -> Content:
    """Return the proof stages as a bar of what became of them."""
    stages = verdict.stages
    counts = ((stages.proved, "good"), (stages.refuted, "bad"), (stages.unknown, "doubt"))
    whole = sum(number for number, _ in counts)
    bar = []
    left = 0.0
    for number, style in counts:
        share = 100 * number / max(1, whole)
        bar += [tag("rect", kind=style, x=f"{left:.3f}%", width=f"{share:.3f}%", height=10)] if number else []
        left += share
    cost = [seconds_text(verdict.seconds)] + ([bytes_text(verdict.peak_bytes)] if verdict.peak_bytes else [])
    words = tag("p", f"{stage_counts(stages)}; {', '.join(cost)}", kind="soft")
    return (tag("svg", bar, kind="bar", role="img", width="100%", height=10) if whole else "", words)


def _reason(reason: Reason, context: Context, show: Excerpts, mesh: Mesh | None) -> Element:
    kind, style = ("defect", "bad") if reason.refutes else ("gap", "doubt")
    facts = (
        ("operator", code(reason.operator) if reason.operator else ""),
        ("in the plan", reason.location.pointer),
        ("on", describe(reason.ranks, mesh)),
    )
    boxes = (("expected", reason.expected, "note"), ("actual", reason.actual, style), ("repair", reason.repair, "good"))
    pair = [tag("div", tag("b", name), sentence(value), kind=edge) for name, value, edge in boxes if value]
    return tag(
        "article",
        tag("h4", _badge(kind), sentence(reason.message), " ", _rule(reason.name)),
        _trail(reason, context, show),
        rows(facts),
        tag("div", pair, kind="pair") if pair else (),
        scene_drawing(reason.scenes, reason.ranks, mesh),
        mesh_drawing(mesh, reason.ranks) if mesh is not None and mesh.size > 1 and reason.ranks else (),
        kind=style,
    )


def _trail(reason: Reason, context: Context, show: Excerpts) -> Content:
    """Return how the value came about, and where it is first wrong."""
    steps = [
        tag("li", sentence(related.message), _at(related.location, context), _source(related.location, show))
        for related in reason.related
    ]
    here = (_at(reason.location, context), _source(reason.location, show))
    if not steps:
        return here
    mark = tag("span", "first wrong value", kind="first") if reason.refutes else "here"
    return tag("ol", steps, tag("li", mark, here), kind="trail")


def _related(related: Sequence[Related], context: Context, show: Excerpts) -> Content:
    return [
        (tag("p", code(place(o.location, context.root)), " ", sentence(o.message), kind="soft"), _source(o.location, show))
        for o in related
    ]


def _at(location: Location, context: Context) -> Element:
    return tag("div", code(place(location, context.root)), kind="soft")


def _source(location: Location, show: Excerpts) -> Content:
    excerpt = show(location)
    if excerpt is None:
        return ()
    number = "" if excerpt.line is None else str(excerpt.line)
    before, span, after = _cut(excerpt.text, excerpt.start, excerpt.length)
    marked: Content = (before, tag("mark", span), after) if span else excerpt.text
    return tag("pre", tag("span", f"{number:>4} | ", kind="number"), marked)


def _cut(text: str, start: int, length: int) -> tuple[str, str, str]:
    """`text` before, in and after the display columns from `start` on."""
    column = 0
    parts = ["", "", ""]
    for character in text:
        parts[0 if column < start else 1 if column < start + length else 2] += character
        column += display_width(character)
    return parts[0], parts[1], parts[2]


def _assumptions(assumptions: Sequence[str]) -> Content:
    if not assumptions:
        return ()
    listed = [tag("li", sentence(assumption)) for assumption in assumptions]
    return tag("details", tag("summary", counted(len(assumptions), "assumption")), tag("ul", listed), open="")


def _comparison(comparison: Comparison, context: Context) -> Element:
    title = relative(comparison.path, context.root) + (f", {comparison.section}" if comparison.section else "")
    tables = (("written", comparison.written), ("follows from it", comparison.follows))
    lines = [
        (tag("tr", *(tag("th", head) for head in (name, "before", "after"))), _differences(differences))
        for name, differences in tables
        if differences
    ]
    return tag("article", tag("h3", code(title)), tag("div", tag("table", lines, kind="change"), kind="scroll"))


def _differences(differences: Sequence[Difference]) -> Content:
    cells = ((row.name, row.before or "not given", row.after or "not given") for row in differences)
    return [tag("tr", *(tag("td", cell) for cell in row)) for row in cells]


def _not_evaluated(report: Report, context: Context) -> list[Element]:
    """Return what is not known, in how many files, and which rules need it: listed by file, it is most of a large page."""
    lines = []
    for reason, rules, paths in files_by_need(report.not_evaluated):
        names = [part for rule in rules for part in (", ", code(rule))][1:]
        files = [part for path in paths[:MOST_FILES] for part in (", ", code(relative(path, context.root)))][1:]
        more = f" and {len(paths) - MOST_FILES:,} more" if len(paths) > MOST_FILES else ""
        lines.append(tag("li", sentence(reason), ": ", names, tag("div", files, more, kind="soft")))
    shown = counted(len({item.location.path for item in report.not_evaluated}), "file")
    return (
        [tag("article", tag("details", tag("summary", f"what rules need to know of {shown}"), tag("ul", lines)))]
        if lines
        else []
    )


def _plan(outline: Outline, report: Report, context: Context) -> Element:
    axes = " × ".join(f"{axis.name} {axis.size}" for axis in outline.mesh.axes)
    ranks = counted(outline.mesh.size, "rank")
    wrong = set(_wrong(report, outline.path))
    return tag(
        "article",
        tag("h3", code(relative(outline.path, context.root))),
        tag("h4", f"Mesh: {axes} = {ranks}" if axes else f"Mesh: {ranks}"),
        mesh_drawing(outline.mesh, wrong) if outline.mesh.size > 1 else (),
        tag("p", tag("span", kind="key wrong"), "concerned by a defect or an error", kind="soft") if wrong else (),
        _schedule(outline),
    )


def _schedule(outline: Outline) -> Content:
    timeline = schedule_drawing(outline)
    if not timeline:
        return ()
    judged = sorted({cell.judged for lane in outline.lanes for cell in lane.cells if cell.judged})
    keys = [(tag("span", kind=f"key {style}"), style) for style in ("forward", "backward", "other", *judged)]
    scale = "not to scale: a backward is drawn twice as long as a forward, all else half as long"
    said = f"; {counted(outline.micro_batches, 'micro-batch')}; {scale}"
    return tag("h4", "Schedule"), tag("p", keys, said, kind="soft"), timeline


def _wrong(report: Report, path: str) -> Iterator[int]:
    """Yield the ranks of the plan at `path` that a defect or an error is about."""
    for verdict in report.verdicts:
        if verdict.parallel == path:
            for reason in verdict.reasons:
                yield from reason.ranks if reason.refutes else ()
    for finding in report.findings:
        about = {finding.location.path, *(related.location.path for related in finding.related)}
        if finding.severity is Severity.ERROR and path in about:
            yield from finding.ranks
