"""Place whole values on ranks by comparing recorded numbers, and find the mesh that states it in axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod

from tvlint.ir.mesh import Axis, Mesh
from tvlint.ir.placement import Placement, Shard
from tvlint.ir.plan import Box
from tvlint.readers.capture.lifting.program import Array

MOST_TRIES = 4096
"""So many places of a piece in a whole are compared."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Places of one dimension that are held in blocks of one size, which lie apart: `places` counts in blocks."""

    dim: int
    size: int
    places: tuple[int, ...]


def whole_box(shape: Sequence[int]) -> Box:
    """Return the box that is all of a shape."""
    return tuple((0, size) for size in shape)


def boxes_of(part: Array, whole: Array) -> list[Box]:
    """Return the boxes of `whole` that hold the same numbers as `part`, at multiples of its size."""
    if part.ndim != whole.ndim or part.dtype != whole.dtype:
        return []
    counts = []
    for length, size in zip(part.shape, whole.shape, strict=True):
        if not length or size % length:
            return []
        counts.append(size // length)
    if prod(counts) > MOST_TRIES:
        return []
    found = []
    for places in product(*map(range, counts)):
        box = tuple((place * length, (place + 1) * length) for place, length in zip(places, part.shape, strict=True))
        if (whole[tuple(slice(low, high) for low, high in box)] == part).all():
            found.append(box)
    return found


def blocks_of(part: Array, whole: Array, known: Sequence[Blocks]) -> Blocks | None:
    """Return the blocks of one dimension of `whole` that hold the same numbers as `part`, as large as they are.

    Where several hold the same numbers those count that other values lie in, which are `known`.
    """
    if part.ndim != whole.ndim or part.dtype != whole.dtype:
        return None
    cut = [dim for dim, (length, size) in enumerate(zip(part.shape, whole.shape, strict=True)) if length != size]
    if len(cut) != 1 or not part.size or whole.shape[cut[0]] > MOST_TRIES:
        return None
    (dim,), length = cut, part.shape[cut[0]]
    sizes = [size for size in range(length // 2, 0, -1) if length % size == 0 and whole.shape[dim] % size == 0]
    there, here = whole.swapaxes(0, dim), part.swapaxes(0, dim)
    for blocks in known:
        if (blocks.dim, blocks.size * len(blocks.places)) == (dim, length) and len(there) % blocks.size == 0:
            count = len(there) // blocks.size
            if max(blocks.places) < count and _joined(there, blocks.size, blocks.places).tobytes() == here.tobytes():
                return blocks
    for size in sizes:
        at: dict[bytes, list[int]] = {}
        for place in range(len(there) // size):
            at.setdefault(there[place * size : (place + 1) * size].tobytes(), []).append(place)
        found = [at.get(here[start : start + size].tobytes(), []) for start in range(0, length, size)]
        if all(found):
            return Blocks(dim, size, tuple(places.pop(0) if len(places) > 1 else places[0] for places in found))
    return None


def pieces_in_blocks(part: Array, whole: Array, known: Sequence[Blocks]) -> Iterator[tuple[Box, Blocks]]:
    """Yield the blocks of one dimension of `whole` that hold the same numbers as `part`, in all samples or in a range of them.

    That dimension of the box says how much of it is held.
    """
    if part.ndim != whole.ndim or not part.size:
        return
    (samples, *rest), count = part.shape or (0,), len(whole) if whole.ndim else 0
    starts = [0] if not samples or count % samples or tuple(rest) == whole.shape[1:] else [*range(0, count, samples)]
    for start in starts:
        within = whole if len(starts) == 1 else whole[start : start + samples]
        blocks = blocks_of(part, within, known)
        if blocks is not None:
            yield ((start, start + samples), *whole_box(rest)), blocks


def _joined(whole: Array, size: int, places: Sequence[int]) -> Array:
    import numpy as np

    joined: Array = np.concatenate([whole[place * size : (place + 1) * size] for place in places])
    return joined


def meshes(ranks: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write a number of ranks as sizes of axes, fewest axes first; at most four."""
    for count in range(1, 5):
        yield from (sizes for sizes in _factorisations(ranks, count) if count == 1 or 1 not in sizes)


def _factorisations(number: int, count: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        yield (number,)
        return
    for first in range(2, number // 2 + 1):
        if number % first == 0:
            yield from ((first, *rest) for rest in _factorisations(number // first, count - 1))


def mesh_of(sizes: Sequence[int], names: Sequence[str] = ()) -> Mesh:
    """Return the mesh with axes of these sizes."""
    return Mesh(tuple(Axis(names[i] if names else f"axis{i}", size) for i, size in enumerate(sizes)))


def axes_of(mesh: Mesh, group: Sequence[int]) -> tuple[str, ...] | None:
    """Return the axes that a group of ranks spans; None where it is no such group."""
    names = [axis.name for axis in mesh.axes]
    ranks = tuple(sorted(group))
    for count in range(len(names) + 1):
        for chosen in combinations(names, count):
            if mesh.along(ranks[0], chosen) == ranks:
                return chosen
    return None


def placements_of(mesh: Mesh, boxes: Mapping[int, Box], whole: Sequence[int]) -> Mapping[str, Placement] | None:
    """Return the placements under which each rank holds its box; None where no placements say so."""
    found: dict[str, Placement] = {}
    for dim, size in enumerate(whole):
        bounds = {rank: box[dim] for rank, box in boxes.items()}
        if all(part == (0, size) for part in bounds.values()):
            continue
        axes = _cutting(mesh, bounds, size)
        if axes is None or found.keys() & set(axes):
            return None
        found.update(_shards(mesh, dim, axes))
    return found


def _shards(mesh: Mesh, dim: int, axes: tuple[str, ...]) -> dict[str, Placement]:
    """Return the placements of axes that cut a dimension one after the other, which a mesh cuts in the order of its axes."""
    found: dict[str, Placement] = {name: Shard(dim) for name in axes}
    names = [axis.name for axis in mesh.axes]
    if len(axes) == 2 and names.index(axes[0]) > names.index(axes[1]):
        outer, inner = (mesh.axis_size(name) for name in axes)
        found[axes[1]] = Shard(
            dim, tuple(tuple(place * inner + position for place in range(outer)) for position in range(inner))
        )
    return found


def _cutting(mesh: Mesh, parts: Mapping[int, tuple[int, int]], size: int) -> tuple[str, ...] | None:
    """Return the axes that cut a dimension into these parts, one after the other: of two also the later one first."""
    names = [axis.name for axis in mesh.axes if axis.size > 1]
    reversed_pairs: list[tuple[str, ...]] = [pair[::-1] for pair in combinations(names, 2)]
    for count in range(1, len(names) + 1):
        in_order: list[tuple[str, ...]] = list(combinations(names, count))
        for chosen in in_order + (reversed_pairs if count == 2 else []):
            if all(_part(mesh, chosen, rank, size) == part for rank, part in parts.items()):
                return chosen
    return None


def _part(mesh: Mesh, axes: Sequence[str], rank: int, size: int) -> tuple[int, int]:
    low, high = 0, size
    coordinates = mesh.coordinates(rank)
    for name in axes:
        step, rest = divmod(high - low, mesh.axis_size(name))
        if rest:
            return 0, 0
        low += coordinates[name] * step
        high = low + step
    return low, high
