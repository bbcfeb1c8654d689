"""The mesh of a topology drawn for a terminal: a row a pipeline stage, a column a data-parallel copy."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.ir.mesh import Mesh
from tvlint.reporters.topology_ranks import members
from tvlint.topology.grid import Grid

MAXIMAL_ROWS = 9


def drawn(grid: Grid, width: int) -> Iterator[str]:
    """Each cell holds the ranks of one model replica's part on one pipeline stage: those that differ on the other axes only."""
    mesh = grid.dense
    inner = tuple(axis.name for axis in mesh.axes if axis.name not in ("pp", "dp"))
    inside = " × ".join(f"{name} {mesh.axis_size(name):,}" for name in reversed(inner) if mesh.axis_size(name) > 1)
    rows = ends(mesh.axis_size("pp"), MAXIMAL_ROWS)
    if not inside and mesh.axis_size("dp") == 1 and mesh.axis_size("pp") == 1:
        yield "  one rank"
        return
    copies = mesh.axis_size("dp")
    shown = copies
    while shown > 3 and len(_line("", _cells(mesh, mesh.axis_size("pp") - 1, ends(copies, shown), inner))) + 12 > width:
        shown = min(shown - 1, 24)
    columns = ends(copies, shown)
    lines = [(f"pp {row}" if row is not None else "⋮", _cells(mesh, row, columns, inner)) for row in rows]
    head = [f"dp {column}" if column is not None else "…" for column in columns]
    room = [max(len(head[place]), *(len(cells[place]) for _, cells in lines)) for place in range(len(columns))]
    yield f"  {'':<8}  {_line('', head, room)}".rstrip()
    for name, cells in lines:
        yield f"  {name:<8}  {_line('', cells, room)}".rstrip()
    if inside:
        yield f"  in each cell: {inside}"


def ends(count: int, shown: int) -> list[int | None]:
    """The numbers below `count`, those in the middle left out and told by None where there are more than `shown`."""
    if count <= shown:
        return list(range(count))
    tail = max(1, shown // 4)
    return [*range(max(1, shown - tail)), None, *range(count - tail, count)]


def _cells(mesh: Mesh, row: int | None, columns: list[int | None], inner: tuple[str, ...]) -> list[str]:
    if row is None:
        return ["⋮"] * len(columns)
    return ["…" if column is None else members(mesh.along(mesh.rank({"pp": row, "dp": column}), inner)) for column in columns]


def _line(gap: str, cells: list[str], room: list[int] | None = None) -> str:
    widths = room or [len(cell) for cell in cells]
    return "  ".join(f"{cell:<{size}}" for cell, size in zip(cells, widths, strict=True)) + gap
