"""A pipeline schedule drawn on one self-contained page: no script, nothing loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tvlint.analyses.schedule.summary import Summary
from tvlint.analyses.schedule.timing import Timed, Timing
from tvlint.findings import Finding, Severity
from tvlint.ir.schedule import ActionKind
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.html import Content, Element, tag
from tvlint.reporters.html.page import code, page, rows, sentence, svg
from tvlint.reporters.text.schedule import described, facts

MAXIMAL_STEPS = 40_000
"""The drawing stops after so many steps, and says so."""
MAXIMAL_RANKS = 512
_SHADES = 4
_STYLE = {
    ActionKind.FORWARD: "forward",
    ActionKind.BACKWARD: "backward",
    ActionKind.INPUT_GRADIENT: "input",
    ActionKind.WEIGHT_GRADIENT: "weight",
}
_KEY = (
    ("forward", "forward"),
    ("backward", "backward"),
    ("input", "input gradient"),
    ("weight", "weight gradient"),
    ("idle", "idle"),
)
_OWN = """
:root { --input: #f3cf7a; --weight: #93cfa2; --idle: #e6e9ed; }
@media (prefers-color-scheme: dark) { :root { --input: #8f7426; --weight: #2f7a4a; --idle: #2a3038; } }
body { max-width: none; } svg .input { fill: var(--input); } svg .weight { fill: var(--weight); }
svg .idle { fill: var(--idle); stroke: none; } svg .c1 { fill-opacity: .72; } svg .c2 { fill-opacity: .5; }
svg .c3 { fill-opacity: .34; } svg .lead { stroke: var(--bad); stroke-width: 2; }
.key.input { background: var(--input); } .key.weight { background: var(--weight); } .key.idle { background: var(--idle); }
"""


def write(summary: Summary, findings: Sequence[Finding], version: str) -> Escaped:
    """Return the facts, the timeline and the findings of one schedule."""
    title = f"{summary.path}: {described(summary)}"
    body: list[Content] = [tag("article", rows(facts(summary)))]
    if summary.timing is None:
        body.append(tag("p", "There is no timeline: ranks wait for each other forever."))
    else:
        body += [tag("h2", "Timeline"), tag("article", _key(), _drawing(summary, summary.timing, findings))]
    if findings:
        body += [tag("h2", "Findings"), *map(_finding, findings)]
    return page(described(summary).split(";")[0], title, body, version, style=_OWN)


def _key() -> Element:
    keys = [(tag("span", kind=f"key {style}"), name) for style, name in _KEY]
    return tag("p", keys, "; a number is a micro-batch, paler chunks come later in the network", kind="soft")


def _drawing(summary: Summary, timing: Timing, findings: Sequence[Finding]) -> Content:
    shown = timing.ranks[:MAXIMAL_RANKS]
    each = max(1, MAXIMAL_STEPS // max(1, len(shown)))
    cut = len(timing.ranks) > len(shown) or any(len(row) > each for row in shown)
    end = max((row[:each][-1].end for row in shown if row), default=1)
    unit = max(3.0, min(18.0, 1300 / end))
    left = 8 * len(f"rank {len(shown)}") + 12
    wrong = {(finding.location.line, finding.location.column) for finding in findings}
    boxes = list(_boxes(summary, shown, each, unit, left, end, wrong))
    height = len(shown) * 26 + 22
    steps = sum(min(len(row), each) for row in shown)
    more = tag("p", f"The first {steps:,} steps of {len(shown):,} ranks are drawn.", kind="soft") if cut else ()
    return svg(left + end * unit + 4, height, boxes), more


def _boxes(
    summary: Summary,
    rows: Sequence[Sequence[Timed]],
    each: int,
    unit: float,
    left: int,
    end: int,
    wrong: set[tuple[int | None, int | None]],
) -> Iterator[Element]:
    for rank, row in enumerate(rows):
        top = rank * 26 + 2
        yield tag("text", f"rank {rank}", kind="axis", x=0, y=top + 16)
        yield tag("rect", kind="idle", x=left, y=top, width=end * unit, height=22, rx=2)
        chunks = {stage: index for index, stage in enumerate(summary.chunks[rank])}
        for timed in row[:each]:
            step = timed.step
            x, width = left + timed.start * unit, (timed.end - timed.start) * unit
            shade = min(chunks.get(step.stage, 0), _SHADES - 1)
            lead = " lead" if (step.location.line, step.location.column) in wrong else ""
            title = tag("title", f"{step.action}: units {timed.start} to {timed.end}, line {step.location.line}")
            style = f"{_STYLE[step.kind]} c{shade}{lead}"
            yield tag("rect", title, kind=style, x=x, y=top, width=width, height=22, rx=2)
            label = str(step.micro_batch)
            if len(label) * 7 <= width:
                yield tag("text", label, x=x + width / 2, y=top + 15, text_anchor="middle")
    bottom = len(rows) * 26 + 16
    every = next(size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000, 10**9) if size * unit >= 60)
    for tick in range(0, end + 1, every):
        yield tag("text", str(tick), kind="axis", x=left + tick * unit, y=bottom)


def _finding(finding: Finding) -> Element:
    style = {Severity.ERROR: "bad", Severity.WARNING: "doubt", Severity.NOTE: "note"}[finding.severity]
    place = f"line {finding.location.line}, column {finding.location.column}"
    help = rows([("help", sentence(finding.help))])
    badge, rule = tag("span", finding.severity.value, kind="badge"), tag("span", code(finding.rule), kind="rule")
    head = tag("h3", badge, sentence(finding.message), " ", rule)
    return tag("article", head, tag("div", place, kind="soft"), help, kind=style)
