"""Sets of ranks, written the way people read them."""

from __future__ import annotations

from collections.abc import Iterable

from tvlint.ir.mesh import Mesh


def compact(ranks: Iterable[int]) -> str:
    """Return the ranks as ascending runs: `0-7,16-23`."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def describe(ranks: Iterable[int], mesh: Mesh | None = None) -> str:
    """Return a phrase for the ranks: `rank 3`, `ranks 0-7,16-23`, `every tp=1 rank`, `every rank`."""
    chosen = sorted(set(ranks))
    if not chosen:
        return "no rank"
    if len(chosen) == 1:
        return f"rank {chosen[0]}"
    runs = compact(chosen)
    if mesh is None or chosen[-1] >= mesh.size or chosen[0] < 0:
        return f"ranks {runs}"
    if len(chosen) == mesh.size:
        return "every rank"
    if runs.count(",") < 2:
        return f"ranks {runs}"
    for axis in mesh.axes:
        places = {mesh.coordinates(rank)[axis.name] for rank in chosen}
        if len(places) == 1 and len(chosen) * axis.size == mesh.size:
            return f"every {axis.name}={places.pop()} rank"
    return f"ranks {runs}"
