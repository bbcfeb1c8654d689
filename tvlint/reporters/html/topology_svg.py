"""Drawings of a topology: the mesh, its groups, the layers of the pipeline, the memory of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tvlint.ir.configuration import Unknown
from tvlint.ir.mesh import Mesh
from tvlint.plurals import counted
from tvlint.reporters.escape.html import Content, Element, tag
from tvlint.reporters.html.page import drawing, svg
from tvlint.reporters.text.topology_mesh import ends
from tvlint.reporters.text.topology_ranks import members
from tvlint.reporters.text.topology_words import GIB, chunk
from tvlint.topology.footprint import StageMemory
from tvlint.topology.grid import Grid, GroupKind
from tvlint.topology.topology import Pipeline

COLOURS = 12
"""So many colours, in turn."""
WIDTH = 1040
"""Columns of a page that a drawing takes before it breaks its rows or leaves some out."""
MAXIMAL_BOXES = 512
"""Larger worlds are drawn with a cell for each part of a replica instead of a box for each rank."""
_PARTS = ("weights", "gradients", "optimizer", "activations")


def mesh(grid: Grid, rank: int | None) -> Content:
    """Return a row for each pipeline stage, a block for each data-parallel copy, in it a box for each rank of others."""
    dense = grid.dense
    if dense.size > MAXIMAL_BOXES:
        return _cells(dense)
    inner = _inner(dense)
    across, down = (dense.axis_size(inner[0]), prod(map(dense.axis_size, inner[1:]))) if inner else (1, 1)
    box = 30 if dense.size <= 256 else 22
    block, tall = across * box + 10, down * box + 10
    copies, stages = dense.axis_size("dp"), dense.axis_size("pp")
    line = max(1, min(copies, (WIDTH - 64) // block))
    lines = -(-copies // line)
    line = -(-copies // lines)
    head = 20 if lines == 1 else 18
    parts: list[Content] = []
    for pp in range(stages):
        for dp in range(copies):
            x, y = 64 + dp % line * block, (pp * lines + dp // line) * tall + 20
            if lines > 1:
                y += (pp * lines + dp // line) * head
            if lines > 1 or pp == 0:
                parts.append(_named(f"dp {dp}", x, y - 8))
            if dp % line == 0:
                parts.append(_named(f"pp {pp}", 0, y + down * box / 2 + 4))
            ranks = dense.along(dense.rank({"pp": pp, "dp": dp}), inner)
            parts += [_box(dense, number, pp, place, (x, y, box, across), rank) for place, number in enumerate(ranks)]
    extra = stages * lines * head if lines > 1 else 0
    return svg(64 + line * block, 20 + stages * lines * tall + extra, parts)


def _named(text: str, x: float, y: float) -> Element:
    return tag("text", text, kind="axis", x=x, y=y)


def _inscribed(text: str, x: float, y: float) -> Element:
    return tag("text", text, x=x, y=y, text_anchor="middle")


def _box(dense: Mesh, number: int, pp: int, place: int, at: tuple[int, int, int, int], rank: int | None) -> Content:
    """One rank's box, `place` boxes behind the first of its block at x, y, with so many across."""
    left, top, box, across = at
    x, y = left + place % across * box, top + place // across * box
    chosen = " chosen" if number == rank else ""
    named = ", ".join(f"{name} {value}" for name, value in dense.coordinates(number).items())
    title = tag("title", f"rank {number}: {named}")
    shape = tag("rect", title, kind=f"k{pp % COLOURS}{chosen}", x=x, y=y, width=box, height=box, rx=3)
    return shape, _inscribed(str(number), x + box / 2, y + box / 2 + 4)


def _inner(dense: Mesh) -> tuple[str, ...]:
    """Return the axes inside a block that have a size, fastest first."""
    return tuple(axis.name for axis in reversed(dense.axes) if axis.name not in ("pp", "dp") and axis.size > 1)


def _cells(dense: Mesh) -> Content:
    """Return the large mesh: a cell holds the ranks of one part of a replica, middle rows and columns are left out."""
    rows, inner = ends(dense.axis_size("pp"), 32), _inner(dense)
    last = members(dense.along(dense.size - 1, inner))
    wide = len(last) * 7 + 16
    columns = ends(dense.axis_size("dp"), max(3, (WIDTH - 64) // wide - 1))
    texts = {
        (row, column): members(dense.along(dense.rank({"pp": row, "dp": column}), inner))
        for row in rows
        for column in columns
        if row is not None and column is not None
    }
    wide = max(map(len, texts.values())) * 7 + 16
    parts = [_named("…" if column is None else f"dp {column}", 64 + x * wide, 12) for x, column in enumerate(columns)]
    for y, row in enumerate(rows):
        top = 20 + y * 28
        parts.append(_named("⋮" if row is None else f"pp {row}", 0, top + 17))
        for x, column in enumerate(columns):
            left = 64 + x * wide
            if row is None or column is None:
                parts.append(_named("…", left + wide / 2 - 8, top + 17))
                continue
            parts.append(tag("rect", kind=f"k{row % COLOURS}", x=left, y=top, width=wide - 6, height=24, rx=3))
            parts.append(_inscribed(texts[row, column], left + (wide - 6) / 2, top + 16))
    return svg(64 + len(columns) * wide, 20 + len(rows) * 28, parts)


def groups(grid: Grid, kinds: Sequence[GroupKind]) -> Content:
    """For each kind of group the mesh once more, in small, ranks of one group in one colour."""
    if not 1 < grid.dense.size <= MAXIMAL_BOXES:
        return ()
    return tag("div", [_small(grid.dense, kind) for kind in kinds if kind.size > 1], kind="small")


def _small(dense: Mesh, kind: GroupKind) -> Element:
    box = 11 if dense.size <= 128 else 7
    inner = _inner(dense)
    across, down = (dense.axis_size(inner[0]), prod(map(dense.axis_size, inner[1:]))) if inner else (1, 1)
    numbers = {rank: index for index in range(kind.count) for rank in kind.group(index)}
    copies, stages = dense.axis_size("dp"), dense.axis_size("pp")
    line = max(1, min(copies, 340 // (across * box + 4)))
    line = -(-copies // -(-copies // line))
    parts = []
    for pp in range(stages):
        for dp in range(copies):
            ranks = dense.along(dense.rank({"pp": pp, "dp": dp}), inner)
            left = dp % line * (across * box + 4)
            top = (pp * -(-copies // line) + dp // line) * (down * box + 4)
            for place, number in enumerate(ranks):
                style = f"k{numbers[number] % COLOURS}" if number in numbers else "none"
                x, y = left + place % across * box, top + place // across * box
                parts.append(tag("rect", kind=style, x=x, y=y, width=box, height=box, rx=1))
    width, height = line * (across * box + 4), stages * -(-copies // line) * (down * box + 4)
    title = tag("figcaption", tag("b", kind.name), f" {counted(kind.count, 'group')} of {kind.size:,}")
    return tag("figure", drawing(width, height, parts), title)


def pipeline(found: Pipeline) -> Element:
    """Return a row for each pipeline stage; a bar for each virtual stage, as long as it has layers."""
    rows = ends(len(found.stages), 64)
    widest = [max(1, *(held[place].layers for held in found.stages)) for place in range(found.virtual)]
    unit = max(2.0, min(26.0, 900 / (sum(widest) + 3 * found.virtual)))
    least = max(len(chunk(held)) for stage in found.stages for held in stage) * 6.6 + 14
    widths = [max(size * unit, least) for size in widest]
    parts = []
    for y, row in enumerate(rows):
        top = y * 26
        if row is None:
            parts.append(_named("⋮", 64, top + 15))
            continue
        parts.append(_named(f"pp {row}", 0, top + 15))
        left = 64.0
        for held, whole, size in zip(found.stages[row], widths, widest, strict=True):
            width = max(whole * held.layers / size, 4)
            parts.append(tag("rect", kind="none", x=left, y=top, width=whole, height=22, rx=3))
            parts.append(tag("rect", kind=f"k{row % COLOURS}", x=left, y=top, width=width, height=22, rx=3))
            parts.append(tag("text", chunk(held), x=left + 6, y=top + 15))
            left += whole + 12
    return svg(64 + sum(widths) + 12 * found.virtual, len(rows) * 26, parts)


def memory(stages: Sequence[StageMemory]) -> Content:
    """Return a stacked bar for each pipeline stage; nothing where a part of any is not known."""
    known = [_known(stage) for stage in stages]
    if any(part is None for parts in known for part in parts):
        return ()
    sizes = [[part or 0 for part in parts] for parts in known]
    most = max(sum(parts) for parts in sizes) or 1
    rows = ends(len(sizes), 64)
    drawn = [list(_bar(y, row, None if row is None else sizes[row], most)) for y, row in enumerate(rows)]
    keys = [(tag("span", kind=f"key {name}"), name) for name in _PARTS]
    return tag("p", keys, kind="soft"), svg(880, len(rows) * 26, drawn)


def _known(stage: StageMemory) -> list[int | None]:
    parts = (stage.weights, stage.gradients, stage.optimizer, stage.activations)
    return [None if isinstance(part, Unknown) else part for part in parts]


def _bar(y: int, row: int | None, parts: list[int] | None, most: int) -> Iterator[Element]:
    top, left = y * 26, 64.0
    if parts is None:
        yield _named("⋮", 64, top + 15)
        return
    yield _named(f"pp {row}", 0, top + 15)
    for name, part in zip(_PARTS, parts, strict=True):
        width = part / most * 700
        title = tag("title", f"{name}: {part / GIB:,.2f} GiB")
        yield tag("rect", title, kind=name, x=left, y=top, width=width, height=22)
        if width > 44:
            yield _inscribed(f"{part / GIB:,.1f}", left + width / 2, top + 15)
        left += width
    yield tag("text", f"{sum(parts) / GIB:,.1f} GiB", x=left + 8, y=top + 15)
