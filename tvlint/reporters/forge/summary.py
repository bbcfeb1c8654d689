"""`summary`: the report for the summary of a workflow step: tables by rule and file, every remark, meshes and schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from tvlint.findings import Finding, Report, Severity
from tvlint.ir.outline import Cell, Outline
from tvlint.ir.plan import Phase
from tvlint.plurals import counted
from tvlint.reporters.context import Context
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.markdown import Block, Code, Heading, Paragraph, Phrase, Preformatted, Table, markdown
from tvlint.reporters.forge.markdown import fitting, remarks
from tvlint.reporters.lanes import length, merged, starts
from tvlint.reporters.text.paths import relative
from tvlint.reporters.text.ranks import describe
from tvlint.reporters.text.totals import SEVERITIES, summary

SUMMARY_BYTES = 1_000_000
"""The summary of a step holds 1 MiB."""
MAXIMAL_ROWS = 50
MAXIMAL_LANES = 32
MAXIMAL_COLUMNS = 160
LEGEND = "; F and B: forward and backward of a micro-batch; !: a defect or gap"
_NAMES = {Phase.FORWARD: "F", Phase.BACKWARD: "B"}


def write(report: Report, context: Context) -> Escaped:
    """As many remarks as fit into the summary of a step, the worst first, and a line that counts those left out."""
    head = [Heading(2, (f"tvlint: {summary(report)}",)), *_tables(report, context)]
    listed = [*remarks(report, context), *(tuple(_plan(outline, context)) for outline in report.outlines)]
    return markdown(*fitting(head, listed, SUMMARY_BYTES))


def _tables(report: Report, context: Context) -> Iterator[Block]:
    if len(report.findings) > 1:
        yield _table("rule", report, lambda finding: finding.rule)
        yield _table("file", report, lambda finding: relative(finding.location.path, context.root))


def _table(name: str, report: Report, key: Callable[[Finding], str]) -> Table:
    """Return how many findings of each severity there are, the worst first."""
    counts: dict[str, Counter[Severity]] = {}
    for finding in report.findings:
        counts.setdefault(key(finding), Counter())[finding.severity] += 1
    order = sorted(counts, key=lambda rule: (*(-counts[rule][severity] for severity in SEVERITIES), rule))
    rows: list[tuple[Phrase, ...]] = [
        ((Code(each_name),), *((str(counts[each_name][severity] or ""),) for severity in SEVERITIES))
        for each_name in order[:MAXIMAL_ROWS]
    ]
    rest = order[MAXIMAL_ROWS:]
    if rest:
        more = sum((counts[each_name] for each_name in rest), Counter[Severity]())
        rows.append(((counted(len(rest), f"more {name}"),), *((str(more[severity] or ""),) for severity in SEVERITIES)))
    severities = tuple(f"{severity.value}s" for severity in SEVERITIES)
    return Table((name, *severities), tuple(rows), severities)


def _plan(outline: Outline, context: Context) -> Iterator[Block]:
    """Yield the mesh of a plan, and what each kind of rank runs when."""
    if outline.mesh.size < 2:
        return
    axes = " × ".join(f"{axis.name} {axis.size}" for axis in outline.mesh.axes)
    yield Heading(3, (Code(relative(outline.path, context.root)),))
    said = f"{axes} = {counted(outline.mesh.size, 'rank')}, {counted(outline.micro_batches, 'micro-batch')}"
    lines = list(_timeline(outline))
    yield Paragraph((f"Mesh: {said}{LEGEND if lines else ''}",))
    if lines:
        yield Preformatted(tuple(lines))


def _timeline(outline: Outline) -> Iterator[str]:
    """Yield a line for each kind of rank."""
    lanes = merged(outline.lanes)
    shown = lanes[:MAXIMAL_LANES]
    names = [describe(lane.ranks) for lane in shown]
    left = max(map(len, names), default=0) + 2
    unit = 1 + max((len(_name(cell)) for lane in shown for cell in lane.cells), default=0) // 2
    for name, lane, row in zip(names, shown, starts(shown), strict=True):
        text = name.ljust(left)
        for cell, start in zip(lane.cells, row, strict=True):
            begin = left + start * unit
            if begin + length(cell) * unit > MAXIMAL_COLUMNS:
                text = f"{text.ljust(begin)}…"
                break
            if cell.computes and cell.phase in _NAMES:
                text = text.ljust(begin) + _name(cell).ljust(length(cell) * unit - 1, "─")
        yield text
    if len(lanes) > len(shown):
        yield f"… {len(lanes) - len(shown):,} more kinds of ranks"


def _name(cell: Cell) -> str:
    micro_batch = str(cell.micro_batch) if cell.micro_batch >= 0 else ""
    return f"{_NAMES.get(cell.phase, '')}{micro_batch}{'!' if cell.judged else ''}"
