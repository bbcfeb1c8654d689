"""Ranks, briefly: `rank 3`, `ranks 0-7,16-23`, `every tp=1 rank`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tvlint.findings import Report
from tvlint.ir.ranks import runs_of

if TYPE_CHECKING:
    from tvlint.ir.mesh import Mesh


def intervals(ranks: Iterable[int]) -> str:
    """Return the ranks in ascending order, runs of three and more as `first-last`."""
    return ",".join(_run(first, last) for first, last in runs_of(sorted(set(ranks))))


def _run(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"


def describe(ranks: Iterable[int], mesh: Mesh | None = None) -> str:
    """Return the ranks in few words: by mesh coordinates where that says exactly which and numbers would need a list."""
    chosen = sorted(set(ranks))
    if not chosen:
        return ""
    plain = f"rank {chosen[0]}" if len(chosen) == 1 else f"ranks {intervals(chosen)}"
    named = _by_coordinates(chosen, mesh) if mesh is not None else None
    listed = len(chosen) > 2 and "," in plain
    return named if named is not None and (listed or len(named) < len(plain) or named == "every rank") else plain


def _by_coordinates(chosen: list[int], mesh: Mesh) -> str | None:
    """`every tp=1 rank` when `chosen` is exactly the ranks with fixed coordinates on some axes."""
    if len(chosen) < 2 or chosen[0] < 0 or chosen[-1] >= mesh.size:
        return None
    points = [mesh.coordinates(rank) for rank in chosen]
    fixed = {
        axis.name: points[0][axis.name]
        for axis in mesh.axes
        if axis.size > 1 and all(point[axis.name] == points[0][axis.name] for point in points)
    }
    expected = mesh.size
    for axis in mesh.axes:
        expected //= axis.size if axis.name in fixed else 1
    if len(chosen) != expected:
        return None
    if not fixed:
        return "every rank"
    return f"every {', '.join(f'{name}={value}' for name, value in fixed.items())} rank"


def meshes(report: Report) -> Callable[[str], Mesh | None]:
    """From the path of a plan to its mesh; any other path gets the one mesh of the report, if there is but one to choose."""
    known = {outline.path: outline.mesh for outline in report.outlines}
    distributed = {mesh for mesh in known.values() if mesh.size > 1}
    only = next(iter(distributed)) if len(distributed) == 1 else None
    return lambda path: known.get(path, only)
