"""Windows on storages: which elements they hold, and how one is read from another."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from tvlint.readers.capture.tapes.tape import Window

if TYPE_CHECKING:
    import numpy.typing as npt

MOST_ELEMENTS = 1 << 22
"""The elements of larger windows are not compared one by one."""

Part: TypeAlias = tuple[int, int]
"""A size and a stride."""


@dataclass(frozen=True, slots=True)
class Permute:
    """Dimension i of the result is dimension `dims[i]`."""

    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """The same elements in the same order, in another shape."""

    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Narrow:
    """`size` places of dimension `dim` from `start` on."""

    dim: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Expand:
    """Dimensions of size 1 repeated."""

    shape: tuple[int, ...]


Move: TypeAlias = Permute | View | Narrow | Expand


def size_of(dtype: str) -> int:
    """Return the bytes that a number of a dtype takes, by the bits in its name; 1 where no bits are named (`bool`)."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits is not None and len(bits[0]) < 4 else 1


def in_pairs(window: Window, dtype: str) -> Window:
    """Return the window on the pairs of real numbers that complex ones are."""
    stride = (*(2 * step for step in window.stride), 1)
    return Window(window.storage, 2 * window.offset, (*window.shape, 2), stride, dtype)


def count(window: Window) -> int:
    """Return the number of elements."""
    return prod(window.shape)


def span(window: Window) -> tuple[int, int]:
    """Return the half-open range of elements of the storage that the window lies in."""
    if not count(window):
        return window.offset, window.offset
    last = sum((size - 1) * stride for size, stride in zip(window.shape, window.stride, strict=True))
    return window.offset, window.offset + last + 1


def is_flat(window: Window) -> bool:
    """Return whether the window holds one range of the storage in its order."""
    expected = 1
    for size, stride in reversed(list(zip(window.shape, window.stride, strict=True))):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def whole_of(window: Window, named: Collection[Window], recorded: Container[int]) -> Window | None:
    """Return the window of the weight, buffer or input that the elements of `window` belong to; None where that is itself.

    What has no name, of a storage that was recorded, is given as it lies in memory, in whatever order of its dimensions it is
    read.
    """
    for each in named:
        if each.storage == window.storage and each != window and moves(each, window) is not None:
            return each
    stored = _in_order_of_memory(window)
    return stored if stored != window and window not in named and window.storage in recorded else None


def _in_order_of_memory(window: Window) -> Window:
    """Return the window with its dimensions in the order in which they lie; as it is where elements repeat."""
    order = sorted(range(len(window.shape)), key=lambda dim: -window.stride[dim])
    if any(size == 1 for size in window.shape) or overlaps_itself(window):
        return window
    return replace(window, shape=tuple(window.shape[dim] for dim in order), stride=tuple(window.stride[dim] for dim in order))


def flat(storage: int, low: int, high: int, dtype: str) -> Window:
    """Return the window on a range of a storage."""
    return Window(storage, low, (high - low,), (1,), dtype)


def elements(window: Window) -> npt.NDArray[Any] | None:
    """Return the places of the elements in the storage, in an array of the window's shape; None where there are too many."""
    import numpy as np

    if count(window) > MOST_ELEMENTS:
        return None
    places = np.asarray(window.offset, dtype=np.int64)
    for size, stride in zip(window.shape, window.stride, strict=True):
        places = places[..., None] + np.arange(size, dtype=np.int64) * stride
    return places


def overlap(one: Window, other: Window) -> bool:
    """Return whether the windows share an element; True where that would take too long to see."""
    if not count(one) or not count(other):
        return False
    low, high = span(one)
    start, end = span(other)
    if high <= start or end <= low:
        return False
    if is_flat(one) and is_flat(other):
        return True
    import numpy as np

    here, there = elements(one), elements(other)
    return here is None or there is None or bool(np.isin(here, there).any())


def overlaps_itself(window: Window) -> bool:
    """Return whether two elements of the window are one place of the storage; False where that would take too long to see."""
    end = 0
    for stride, size in sorted((stride, size) for size, stride in zip(window.shape, window.stride, strict=True) if size > 1):
        if stride <= end:
            break
        end += (size - 1) * stride
    else:
        return False
    import numpy as np

    places = elements(window)
    return places is not None and np.unique(places).size < places.size


def moves(source: Window, target: Window) -> tuple[Move, ...] | None:
    """Return how the elements of `target` are read from a tensor that holds those of `source`; None where they are not."""
    found = _reordered(source, target) if 0 in source.stride else _direct(source, target)
    if found is not None or not is_flat(source) or not count(target):
        return found
    whole = flat(source.storage, source.offset, source.offset + count(source), source.dtype)
    found = _direct(whole, target)
    if found is not None:
        return (View(whole.shape), *found)
    low, high = span(target)
    if low < source.offset or high > source.offset + count(source):
        return None
    rest = _direct(flat(source.storage, low, high, source.dtype), target)
    return None if rest is None else (View(whole.shape), Narrow(0, low - source.offset, high - low), *rest)


def _reordered(source: Window, target: Window) -> tuple[Move, ...] | None:
    """Return the moves where the target has the dimensions of the source in another order, also those that repeat elements."""
    held = [i for i, size in enumerate(source.shape) if size != 1]
    order: list[int] = []
    for size, stride in zip(target.shape, target.stride, strict=True):
        if size == 1:
            continue
        free = [i for i in held if i not in order and (source.shape[i], source.stride[i]) == (size, stride)]
        if not free:
            return None
        order.append(free[0])
    if len(order) != len(held) or source.offset != target.offset:
        return None
    order = _with_ones(order, source.shape)
    permuted = tuple(source.shape[i] for i in order)
    moved: tuple[Move, ...] = () if order == sorted(order) else (Permute(tuple(order)),)
    return moved if permuted == target.shape else (*moved, View(target.shape))


def _with_ones(order: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Return an order of dimensions with those of size 1: in front where they were, as of a sample, else behind the others."""
    rest = [at for at in range(len(shape)) if at not in order]
    in_front = [at for at in rest if all(size == 1 for size in shape[:at])]
    return [*in_front, *order, *(at for at in rest if at not in in_front)]


def _direct(source: Window, target: Window) -> tuple[Move, ...] | None:
    """Return the moves where the factors of the one are those of the other; of a dimension of the source a range is taken whole
    before it is viewed as several.
    """
    joined = _joined(source, target)
    found = _ranges(source, joined)
    if found is None:
        found = _factored(source, joined)
    if found is None or joined == target:
        return found
    return (*(found[:-1] if found and isinstance(found[-1], View) else found), View(target.shape))


def _ranges(source: Window, target: Window) -> tuple[Move, ...] | None:
    """Return the moves where each dimension of the target is a range of one of the source; None where all of each is taken."""
    held = {stride: i for i, (size, stride) in enumerate(zip(source.shape, source.stride, strict=True)) if size != 1}
    kept = [(size, stride) for size, stride in zip(target.shape, target.stride, strict=True) if size != 1]
    places = [held.get(stride) for _, stride in kept]
    if 0 in held or len(held) < sum(size != 1 for size in source.shape) or None in places or len({*places}) < len(places):
        return None
    taken = {at: size for at, (size, _) in zip(places, kept, strict=True)}
    found: list[Move] = []
    shape, offset = list(source.shape), target.offset - source.offset
    for stride, at in sorted(held.items(), reverse=True):
        start, offset = divmod(offset, stride)
        size = taken.get(at, 1)
        if start < 0 or start + size > source.shape[at]:
            return None
        if size != source.shape[at]:
            found.append(Narrow(at, start, size))
            shape[at] = size
    if offset or not found:
        return None
    order = [at for at in places if at is not None]
    if order != sorted(order):
        order = _with_ones(order, shape)
        found.append(Permute(tuple(order)))
        shape = [shape[at] for at in order]
    return tuple(found) if tuple(shape) == target.shape else (*found, View(target.shape))


def _joined(source: Window, target: Window) -> Window:
    """Return the target with neighbouring dimensions that are one range of a dimension of the source joined."""
    shape: list[int] = []
    stride: list[int] = []
    for size, step in zip(target.shape, target.stride, strict=True):
        inside = any(
            here <= step and shape and shape[-1] * stride[-1] <= there * here
            for there, here in zip(source.shape, source.stride, strict=True)
        )
        if shape and size > 1 and shape[-1] > 1 and step > 0 and stride[-1] == size * step and inside:
            shape[-1], stride[-1] = shape[-1] * size, step
        else:
            shape.append(size)
            stride.append(step)
    return replace(target, shape=tuple(shape), stride=tuple(stride))


def _factored(source: Window, target: Window) -> tuple[Move, ...] | None:
    """Return the moves where the factors of the one are those of the other.

    Both are split into the same factors: the source is put into the order of the storage and viewed as its factors, of each of
    which the target takes a range.
    """
    order = sorted((i for i, size in enumerate(source.shape) if size != 1), key=lambda i: -source.stride[i])
    held = [(source.shape[i], source.stride[i]) for i in order]
    wanted = [(i, size, target.stride[i]) for i, size in enumerate(target.shape) if size != 1]
    if any(stride == 0 for _, stride in held):
        return None
    kept = [(size, stride) for _, size, stride in wanted if stride]
    parts = _refined(kept, held)
    if parts is None:
        return None
    factors = _factors(held, sorted({part for whole in parts for part in whole}, key=lambda part: -part[1]))
    offset = target.offset - source.offset
    if factors is None or offset < 0:
        return None
    starts = []
    for _, stride, _ in factors:
        start, offset = divmod(offset, stride)
        starts.append(start)
    fits = all(start + taken <= size for start, (size, _, taken) in zip(starts, factors, strict=True))
    if offset or not fits:
        return None
    return _written(source, order, factors, starts, parts, target, [stride == 0 for _, _, stride in wanted])


def _refined(kept: list[Part], held: list[Part]) -> list[list[Part]] | None:
    """Split each dimension that spans several of those that are held; None where they do not fit."""
    found = []
    for size, stride in kept:
        pieces: list[Part] = []
        while size > 1:
            inside = [(n, s) for n, s in held if s <= stride and stride % s == 0 and stride < s * n]
            if not inside:
                return None
            n, s = inside[-1] if inside[-1][1] == stride else max(inside, key=lambda part: part[1])
            room = n * s // stride
            if size <= room:
                pieces.append((size, stride))
                break
            if (n * s) % stride or size % room:
                return None
            pieces.append((room, stride))
            size, stride = size // room, n * s
        found.append(pieces[::-1])
    return found


def _factors(held: list[Part], parts: list[Part]) -> list[tuple[int, int, int]] | None:
    """Return the factors of what is held, as size, stride and how many the target takes; None where they do not divide."""
    found = []
    used = 0
    for size, stride in held:
        end = size * stride
        inner = [part for part in parts if stride <= part[1] < end]
        used += len(inner)
        for taken, step in inner:
            if step % stride or end % step:
                return None
            found.append((end // step, step, taken))
            end = step
        if end > stride:
            found.append((end // stride, stride, 1))
    return found if used == len(parts) else None


def _ranges_of_dimensions(
    shape: Sequence[int], factors: Sequence[tuple[int, int, int]], starts: Sequence[int]
) -> dict[int, tuple[int, Narrow]]:
    """Return the outermost factors of dimensions of which a range is taken, and parts of that range, each with the range.

    A range that is taken before it is split leaves the rest of the dimension as it is.
    """
    found: dict[int, tuple[int, Narrow]] = {}
    at = 0
    for dim, whole in enumerate(shape):
        first, split = at, 1
        while split < whole:
            split *= factors[at][0]
            at += 1
        parts = factors[first:at]
        if parts and parts[0][2] < parts[0][0] and any(taken < size for size, _, taken in parts[1:]):
            inner, taken = whole // factors[first][0], factors[first][2]
            found[first] = taken, Narrow(dim, starts[first] * inner, taken * inner)
    return found


def _written(
    source: Window,
    order: list[int],
    factors: list[tuple[int, int, int]],
    starts: list[int],
    parts: list[list[Part]],
    target: Window,
    repeated: list[bool],
) -> tuple[Move, ...]:
    """Return the moves, without those that change nothing."""
    found: list[Move] = []
    shape: tuple[int, ...] = source.shape
    if order != sorted(order):
        dims = _with_ones(order, source.shape)
        found.append(Permute(tuple(dims)))
        shape = tuple(source.shape[i] for i in dims)
    taken = tuple(taken_size for _, _, taken_size in factors)
    ranges = _ranges_of_dimensions(shape, factors, starts)
    sizes = tuple(ranges.get(i, (size,))[0] for i, (size, _, _) in enumerate(factors))
    starts = [0 if i in ranges else start for i, start in enumerate(starts)]
    for _, narrow_first in ranges.values():
        found.append(narrow_first)
        shape = (*shape[: narrow_first.dim], narrow_first.size, *shape[narrow_first.dim + 1 :])
    if taken != sizes:
        if shape != sizes:
            found.append(View(sizes))
        found += [Narrow(i, starts[i], taken_size) for i, taken_size in enumerate(taken) if taken_size != sizes[i]]
        shape = taken
    strides = {stride: i for i, (_, stride, taken_size) in enumerate(factors) if taken_size > 1}
    wanted = [strides[stride] for whole in parts for _, stride in whole]
    if wanted != sorted(wanted):
        if shape != taken:
            found.append(View(taken))
        rest = [i for i, taken_size in enumerate(taken) if taken_size == 1]
        found.append(Permute((*wanted, *rest)))
        shape = tuple(taken[i] for i in (*wanted, *rest))
    zeros = iter(repeated)
    narrow = tuple(1 if size == 1 or next(zeros) else size for size in target.shape)
    if shape != narrow:
        found.append(View(narrow))
    if narrow != target.shape:
        found.append(Expand(target.shape))
    return tuple(found)
