"""Local shapes of values that are placed on a mesh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvlint.ir.mesh import Mesh
from tvlint.ir.placement import Placement, Shard
from tvlint.plurals import counted


@dataclass(frozen=True, slots=True)
class Undivided:
    """Dimension `dim` of length `length` does not divide into `pieces` pieces over `axis`; `packed`: a part of it does not."""

    dim: int
    length: int
    pieces: int
    axis: str
    packed: bool = False


def local_shape(mesh: Mesh, whole: tuple[int, ...], placements: Mapping[str, Placement]) -> tuple[int, ...]:
    """Return the shape that every rank holds of a value of shape `whole`; raises ValueError, saying why, when there is none."""
    shape, undivided = floored_shape(mesh, whole, placements)
    if undivided is not None:
        part = "a part of " if undivided.packed else ""
        raise ValueError(
            f"{part}dimension {undivided.dim} of length {undivided.length} does not divide into {undivided.pieces} pieces "
            f"over `{undivided.axis}`"
        )
    return shape


def floored_shape(
    mesh: Mesh, whole: tuple[int, ...], placements: Mapping[str, Placement]
) -> tuple[tuple[int, ...], Undivided | None]:
    """Return the shape that every rank holds of a value of shape `whole`, and the first dimension of which pieces are left
    over.

    Raises ValueError, saying why, for placements that no value of that shape has.
    """
    shape, undivided = list(whole), None
    for axis, placement in placements.items():
        if not isinstance(placement, Shard):
            continue
        if not -len(shape) <= placement.dim < len(shape):
            raise ValueError(f"`{axis}` shards dimension {placement.dim} of a shape of {counted(len(shape), 'dimension')}")
        size = mesh.axis_size(axis)
        if placement.order and len(placement.order) != size:
            raise ValueError(f"`order` lists {counted(len(placement.order), 'coordinate')}, axis `{axis}` has {size}")
        pieces = sum(map(len, placement.order)) if placement.order else size
        count = len(placement.order[0]) if placement.order else 1
        length = shape[placement.dim]
        if placement.parts and sum(placement.parts) != whole[placement.dim]:
            parts = list(placement.parts)
            raise ValueError(f"parts {parts} add up to {sum(parts)}, the dimension is {whole[placement.dim]} long")
        if pieces == 0:
            raise ValueError(f"dimension {placement.dim} of length {length} does not divide into {pieces} pieces over `{axis}`")
        uneven = [part for part in placement.parts if part % pieces]
        if uneven and undivided is None:
            undivided = Undivided(placement.dim, uneven[0], pieces, axis, True)
        if uneven:
            shape[placement.dim] = sum(max(part // pieces, min(part, 1)) for part in placement.parts) * count
            continue
        if length % pieces and undivided is None:
            undivided = Undivided(placement.dim, length, pieces, axis)
        shape[placement.dim] = max(length // pieces, min(length, 1)) * count
    return tuple(shape), undivided


def whole_shape(mesh: Mesh, local: tuple[int, ...], placements: Mapping[str, Placement]) -> tuple[int, ...] | None:
    """Return the shape of the value of which every rank holds `local`; None where it does not follow."""
    shape = list(local)
    for axis, placement in placements.items():
        if not isinstance(placement, Shard):
            continue
        if not -len(shape) <= placement.dim < len(shape):
            return None
        counts = {len(pieces) for pieces in placement.order}
        if counts and (len(counts) > 1 or 0 in counts or shape[placement.dim] % min(counts)):
            return None
        shape[placement.dim] *= mesh.axis_size(axis)
    return tuple(shape) if all(size < 2**62 for size in shape) else None
