"""The mesh of a topology drawn for a terminal: a row a pipeline stage, a column a data-parallel copy."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.ir.mesh import Mesh
from tvlint.reporters.text.topology_ranks import members
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
    head, lines, room = _table(mesh, rows, ends(copies, shown), inner)
    while shown > 3 and sum(room) + 2 * len(room) + 10 > width:
        shown = min(shown - 1, 24)
        head, lines, room = _table(mesh, rows, ends(copies, shown), inner)
    yield f"  {'':<8}  {_line(head, room)}".rstrip()
    for name, cells in lines:
        yield f"  {name:<8}  {_line(cells, room)}".rstrip()
    if inside:
        yield f"  in each cell: {inside}"


def _table(
    mesh: Mesh, rows: list[int | None], columns: list[int | None], inner: tuple[str, ...]
) -> tuple[list[str], list[tuple[str, list[str]]], list[int]]:
    """Return the head, the rows with their names, and the width of each column."""
    head = [f"dp {column}" if column is not None else "…" for column in columns]
    lines = [(f"pp {row}" if row is not None else "⋮", _cells(mesh, row, columns, inner)) for row in rows]
    return head, lines, [max(len(head[at]), *(len(cells[at]) for _, cells in lines)) for at in range(len(columns))]


def ends(count: int, shown: int) -> list[int | None]:
    """The numbers below `count`, those in the middle left out and shown as None where there are more than `shown`."""
    if count <= shown:
        return list(range(count))
    tail = max(1, shown // 4)
    return [*range(max(1, shown - tail)), None, *range(count - tail, count)]


def _cells(mesh: Mesh, row: int | None, columns: list[int | None], inner: tuple[str, ...]) -> list[str]:
    if row is None:
        return ["…" if column is None else "⋮" for column in columns]
    return ["…" if column is None else members(mesh.along(mesh.rank({"pp": row, "dp": column}), inner)) for column in columns]


def _line(cells: list[str], room: list[int]) -> str:
    return "  ".join(f"{cell:<{size}}" for cell, size in zip(cells, room, strict=True))
