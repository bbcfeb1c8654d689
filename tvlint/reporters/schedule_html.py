"""A pipeline schedule drawn on one self-contained page: no script, nothing loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tvlint.analyses.schedule_summary import Summary
from tvlint.analyses.schedule_timing import Timed, Timing
from tvlint.findings import Finding, Severity
from tvlint.ir.schedule import ActionKind
from tvlint.reporters.html_page import code, page, rows, sentence, words
from tvlint.reporters.schedule_text import described, facts

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


def write(summary: Summary, findings: Sequence[Finding], version: str) -> str:
    """The facts, the timeline and the findings of one schedule."""
    title = f"{summary.path}: {described(summary)}"
    body = f"<article>{rows((words(name), words(value)) for name, value in facts(summary))}</article>"
    if summary.timing is None:
        body += "<p>There is no timeline: ranks wait for each other for ever.</p>"
    else:
        body += f"<h2>Timeline</h2><article>{_key()}{_drawing(summary, summary.timing, findings)}</article>"
    if findings:
        body += f"<h2>Findings</h2>{''.join(map(_finding, findings))}"
    return page(described(summary).split(";")[0], title, body, version, style=_OWN)


def _key() -> str:
    keys = "".join(f'<span class="key {style}"></span>{name}' for style, name in _KEY)
    return f'<p class="soft">{keys}; a number is a micro-batch, paler chunks come later in the network</p>'


def _drawing(summary: Summary, timing: Timing, findings: Sequence[Finding]) -> str:
    shown = timing.ranks[:MAXIMAL_RANKS]
    each = max(1, MAXIMAL_STEPS // max(1, len(shown)))
    cut = len(timing.ranks) > len(shown) or any(len(row) > each for row in shown)
    end = max((row[:each][-1].end for row in shown if row), default=1)
    unit = max(3.0, min(18.0, 1300 / end))
    left = 8 * len(f"rank {len(shown)}") + 12
    wrong = {(finding.location.line, finding.location.column) for finding in findings}
    boxes = list(_boxes(summary, shown, each, unit, left, end, wrong))
    height = len(shown) * 26 + 22
    width = left + end * unit + 4
    size = f'width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}"'
    steps = sum(min(len(row), each) for row in shown)
    more = f'<p class="soft">The first {steps:,} steps of {len(shown):,} ranks are drawn.</p>' if cut else ""
    return f'<div class="scroll"><svg role="img" {size}>{"".join(boxes)}</svg></div>{more}'


def _boxes(
    summary: Summary,
    rows: Sequence[Sequence[Timed]],
    each: int,
    unit: float,
    left: int,
    end: int,
    wrong: set[tuple[int | None, int | None]],
) -> Iterator[str]:
    for rank, row in enumerate(rows):
        top = rank * 26 + 2
        yield f'<text class="axis" x="0" y="{top + 16}">rank {rank}</text>'
        yield f'<rect class="idle" x="{left}" y="{top}" width="{end * unit:g}" height="22" rx="2"/>'
        chunks = {stage: index for index, stage in enumerate(summary.chunks[rank])}
        for timed in row[:each]:
            step = timed.step
            x, width = left + timed.start * unit, (timed.end - timed.start) * unit
            shade = min(chunks.get(step.stage, 0), _SHADES - 1)
            lead = " lead" if (step.location.line, step.location.column) in wrong else ""
            yield f'<rect class="{_STYLE[step.kind]} c{shade}{lead}" x="{x:g}" y="{top}" width="{width:g}" height="22" rx="2">'
            yield f"<title>{step.action}: units {timed.start} to {timed.end}, line {step.location.line}</title></rect>"
            label = str(step.micro_batch)
            if len(label) * 7 <= width:
                yield f'<text x="{x + width / 2:g}" y="{top + 15}" text-anchor="middle">{label}</text>'
    bottom = len(rows) * 26 + 16
    every = next(size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000, 10**9) if size * unit >= 60)
    for tick in range(0, end + 1, every):
        yield f'<text class="axis" x="{left + tick * unit:g}" y="{bottom}">{tick}</text>'


def _finding(finding: Finding) -> str:
    style = {Severity.ERROR: "bad", Severity.WARNING: "doubt", Severity.NOTE: "note"}[finding.severity]
    place = f"line {finding.location.line}, column {finding.location.column}"
    help = rows([("help", sentence(finding.help))])
    return (
        f'<article class="{style}"><h3><span class="badge">{finding.severity.value}</span>{sentence(finding.message)} '
        f'<span class="rule">{code(finding.rule)}</span></h3><div class="soft">{place}</div>{help}</article>'
    )
