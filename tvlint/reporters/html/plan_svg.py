"""A plan drawn as SVG: its mesh, and its pipeline schedule over time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod

from tvlint.ir.mesh import Axis, Mesh
from tvlint.ir.outline import Lane, Outline
from tvlint.ir.plan import Phase
from tvlint.reporters.escape.html import Content, Element, tag
from tvlint.reporters.html.page import svg
from tvlint.reporters.lanes import length, merged, starts
from tvlint.reporters.text.ranks import describe

MAXIMAL_RANKS = 1024
"""More ranks than that are drawn with their largest axis folded into one cell."""
MAXIMAL_CELLS = 6000
"""The schedule drawing stops after so many steps, and says so."""

_STYLE = {Phase.FORWARD: "forward", Phase.BACKWARD: "backward"}


def mesh_drawing(mesh: Mesh, wrong: Collection[int]) -> Content:
    """Every rank as a box: the last axis in a row, of three and more the one before it as groups, the rest downwards."""
    mesh, wrong, folded = _folded(mesh, wrong)
    axes = [axis for axis in mesh.axes if axis.size > 1]
    across = axes[-1].size if axes else 1
    groups = axes[-2].size if len(axes) > 2 else 1
    downwards = axes[:-2] if len(axes) > 2 else axes[:-1]
    rows = mesh.size // (across * groups)
    size, gap = (30, 10) if mesh.size <= 256 else (12, 6)
    left = 8 * max((len(_row_name(downwards, row)) for row in range(rows)), default=0) + 10
    boxes: list[Element] = []
    for row in range(rows):
        top = row * (size + 4) + 18
        boxes.append(tag("text", _row_name(downwards, row), kind="axis", x=0, y=f"{top + size / 2 + 4:.0f}"))
        for group in range(groups):
            for column in range(across):
                rank = (row * groups + group) * across + column
                x = left + group * (across * size + gap) + column * size
                boxes.append(tag("rect", kind="wrong" if rank in wrong else "", x=x, y=top, width=size, height=size, rx=3))
                if size == 30 and not folded:
                    on = "on" if rank in wrong else ""
                    boxes.append(tag("text", str(rank), kind=on, x=x + 15, y=top + 19, text_anchor="middle"))
    if groups > 1:
        for group in range(groups):
            x = left + group * (across * size + gap)
            if across * size >= 40:
                boxes.append(tag("text", f"{axes[-2].name} {group}", kind="axis", x=x, y=12))
    said = tag("p", _reading(axes, groups, folded), kind="soft")
    return svg(left + groups * (across * size + gap), rows * (size + 4) + 22, boxes), said


def _reading(axes: list[Axis], groups: int, folded: str) -> str:
    """Return what a box is, and which axis runs which way."""
    box = f"One box stands for all {folded} of a place" if folded else "A box is a rank"
    if not axes:
        return f"{box}."
    blocks = f", {axes[-2].name} from block to block" if groups > 1 else ""
    return f"{box}; {axes[-1].name} runs from left to right{blocks}."


def _row_name(downwards: list[Axis], row: int) -> str:
    """Return the coordinates of a row on the axes that run downwards: `pp 1, cp 0`."""
    names = []
    for axis in reversed(downwards):
        row, coordinate = divmod(row, axis.size)
        names.append(f"{axis.name} {coordinate}")
    return ", ".join(reversed(names))


def _folded(mesh: Mesh, wrong: Collection[int]) -> tuple[Mesh, Collection[int], str]:
    """Return the mesh without as many of its largest axes as must go, and the boxes in which a wrong rank is."""
    kept = list(mesh.axes)
    gone: list[Axis] = []
    while kept and prod(axis.size for axis in kept) > MAXIMAL_RANKS:
        gone.append(kept.pop(max(range(len(kept)), key=lambda index: kept[index].size)))
    if not gone:
        return mesh, frozenset(wrong), ""
    smaller = Mesh(tuple(kept))
    inside = [rank for rank in wrong if 0 <= rank < mesh.size]
    seen = {smaller.rank(mesh.coordinates(rank)) for rank in inside}
    return smaller, seen, ", ".join(f"{axis.size:,} {axis.name} coordinates" for axis in gone)


def schedule_drawing(outline: Outline) -> Content:
    """Each kind of rank as a lane, its steps as early as the steps that they wait for allow."""
    lanes = merged(outline.lanes)
    shown, cut = _first(lanes)
    if not any(lane.cells for lane in shown):
        return ()
    timeline = starts(shown)
    names = [describe(lane.ranks) for lane in shown]
    left = 7 * max(map(len, names)) + 14
    end = max(
        start + length(cell)
        for lane, row in zip(shown, timeline, strict=True)
        for cell, start in zip(lane.cells, row, strict=True)
    )
    unit = max(3, min(14, 1000 // max(1, end)))
    boxes = list(_boxes(shown, timeline, names, left, unit))
    drawn = sum(len(lane.cells) for lane in shown)
    more = tag("p", f"The first {drawn:,} steps are drawn.", kind="soft") if cut else ()
    return svg(left + end * unit + 2, len(shown) * 24 + 4, boxes), more


def _boxes(lanes: list[Lane], starts: list[list[int]], names: list[str], left: int, unit: int) -> Iterator[Element]:
    for index, (lane, row) in enumerate(zip(lanes, starts, strict=True)):
        top = index * 24 + 2
        yield tag("text", names[index], kind="axis", x=0, y=top + 15)
        for cell, start in zip(lane.cells, row, strict=True):
            x, width = left + start * unit, length(cell) * unit
            label = str(cell.micro_batch) if cell.micro_batch >= 0 and cell.computes else ""
            does = cell.phase.value if cell.computes else f"{cell.phase.value}, moves data only"
            title = f"{does}, pipeline stage {cell.pipeline_stage}, micro-batch {cell.micro_batch}"
            title += f": {cell.judged}" if cell.judged else ""
            style = f"{_STYLE.get(cell.phase, '') if cell.computes else ''} {cell.judged}".strip()
            yield tag("rect", tag("title", title), kind=style, x=x, y=top, width=width, height=20, rx=2)
            if label and len(label) * 7 <= width:
                on = "on" if cell.judged else ""
                yield tag("text", label, kind=on, x=x + width / 2, y=top + 14, text_anchor="middle")


def _first(lanes: list[Lane]) -> tuple[list[Lane], bool]:
    """Return the lanes with so few steps each that all together stay below `MAXIMAL_CELLS`."""
    lanes_shown = lanes[:128]
    room = MAXIMAL_CELLS // max(1, len(lanes_shown))
    cut = len(lanes) > 128 or any(len(lane.cells) > room for lane in lanes_shown)
    return [Lane(lane.ranks, lane.cells[:room]) for lane in lanes_shown], cut
