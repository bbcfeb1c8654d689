"""Which shape a rank holds of a value that lies on a mesh."""

from __future__ import annotations

from collections.abc import Mapping

from tvlint.ir.mesh import Mesh
from tvlint.ir.placement import Placement, Shard


def local_shape(mesh: Mesh, whole: tuple[int, ...], placements: Mapping[str, Placement]) -> tuple[int, ...]:
    """The shape that every rank holds of a value of shape `whole`; raises ValueError, saying why, when there is none."""
    shape = list(whole)
    for axis, placement in placements.items():
        if not isinstance(placement, Shard):
            continue
        if not -len(shape) <= placement.dim < len(shape):
            raise ValueError(f"`{axis}` shards dimension {placement.dim} of a shape of {len(shape)} dimensions")
        size = mesh.axis_size(axis)
        if placement.order and len(placement.order) != size:
            raise ValueError(f"`order` lists {len(placement.order)} coordinates, axis `{axis}` has {size}")
        pieces = sum(map(len, placement.order)) if placement.order else size
        own = len(placement.order[0]) if placement.order else 1
        length = shape[placement.dim]
        if placement.parts and sum(placement.parts) != whole[placement.dim]:
            parts = list(placement.parts)
            raise ValueError(f"parts {parts} add up to {sum(parts)}, the dimension is {whole[placement.dim]} long")
        if pieces == 0 or length % pieces or any(part % pieces for part in placement.parts):
            raise ValueError(f"dimension {placement.dim} of length {length} does not divide into {pieces} pieces over `{axis}`")
        shape[placement.dim] = length // pieces * own
    return tuple(shape)


def whole_shape(mesh: Mesh, local: tuple[int, ...], placements: Mapping[str, Placement]) -> tuple[int, ...] | None:
    """The shape of the value of which every rank holds `local`; None where it does not follow."""
    shape = list(local)
    for axis, placement in placements.items():
        if isinstance(placement, Shard):
            if not -len(shape) <= placement.dim < len(shape) or placement.order:
                return None
            shape[placement.dim] *= mesh.axis_size(axis)
    return tuple(shape) if all(size < 2**62 for size in shape) else None
