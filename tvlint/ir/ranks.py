"""Sets of ranks, written the way people read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvlint.ir.mesh import Mesh


_MOST_RUNS = 16
"""So many runs of ranks are listed in a phrase."""


def runs_of(ranks: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last of each run of ranks that follow each other, in the order given."""
    runs: list[tuple[int, int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], rank
        else:
            runs.append((rank, rank))
    return runs


def in_runs(ranks: Iterable[int]) -> str:
    """Return the ranks in the order given: `0,2,4-7`."""
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs_of(ranks))


def compact(ranks: Iterable[int]) -> str:
    """Return the ranks as ascending runs: `0-7,16-23`."""
    return in_runs(sorted(set(ranks)))


def describe(ranks: Iterable[int], mesh: Mesh | None = None) -> str:
    """Return a phrase for the ranks: `rank 3`, `ranks 0-7,16-23`, `every tp=1 rank`, `every rank`."""
    chosen = sorted(set(ranks))
    if not chosen:
        return "no rank"
    if len(chosen) == 1:
        return f"rank {chosen[0]}"
    several = runs_of(chosen)
    listed = [rank for low, high in several[:_MOST_RUNS] for rank in range(low, high + 1)]
    runs = in_runs(listed) + (f" and {len(chosen) - len(listed)} more" if len(several) > _MOST_RUNS else "")
    if mesh is None or chosen[-1] >= mesh.size or chosen[0] < 0:
        return f"ranks {runs}"
    if len(chosen) == mesh.size:
        return "every rank"
    if len(several) <= 2:
        return f"ranks {runs}"
    for axis in mesh.axes:
        places = {mesh.coordinates(rank)[axis.name] for rank in chosen}
        if len(places) == 1 and len(chosen) * axis.size == mesh.size:
            return f"every {axis.name}={places.pop()} rank"
    return f"ranks {runs}"
