"""Boxes of indices: whether some overlap, and whether they make up a whole.

Boxes that ranks hold are cells of a grid. They are judged dimension by dimension, in proportion to their number; only boxes
that lie across each other in every dimension are compared one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, product

from tvlint.ir.plan import Box


def are_disjoint(boxes: Sequence[Box]) -> bool:
    """Return whether no two of the boxes, which have as many dimensions each, overlap."""
    if len(boxes) < 2:
        return True
    slabs = _slabs(boxes)
    if slabs is not None:
        return all(are_disjoint(rest) for rest in slabs.values())
    return not any(_overlap(one, other) for place, one in enumerate(boxes) for other in boxes[:place])


def covers(boxes: Iterable[Box], whole: tuple[int, ...]) -> bool:
    """Return whether every element of the whole is in some box."""
    return 0 in whole or _covers(list(set(boxes)), tuple((0, size) for size in whole))


def _covers(boxes: Sequence[Box], whole: Box) -> bool:
    if not boxes or not whole:
        return bool(boxes)
    for dim, bounds in enumerate(whole):
        slabs = _slabs_along(boxes, dim)
        if slabs is not None:
            rest = (*whole[:dim], *whole[dim + 1 :])
            return _tile(slabs, bounds) and all(_covers(list(set(slab)), rest) for slab in slabs.values())
    return _covers_cells(boxes, whole)


def _covers_cells(boxes: Sequence[Box], whole: Box) -> bool:
    edges = [sorted({*bounds, *(edge for box in boxes for edge in box[dim])}) for dim, bounds in enumerate(whole)]
    return all(
        any(all(low <= a and b <= high for (low, high), (a, b) in zip(box, cell, strict=True)) for box in boxes)
        for cell in product(*(pairwise(marks) for marks in edges))
    )


def _tile(intervals: Iterable[tuple[int, int]], bounds: tuple[int, int]) -> bool:
    """Return whether intervals that do not overlap make up all of `bounds`."""
    ordered = sorted(intervals)
    reach = ordered[0][0] <= bounds[0] and bounds[1] <= ordered[-1][1]
    return reach and all(one[1] == other[0] for one, other in pairwise(ordered))


def _slabs(boxes: Sequence[Box]) -> dict[tuple[int, int], list[Box]] | None:
    found = (_slabs_along(boxes, dim) for dim in range(len(boxes[0])))
    return next((slabs for slabs in found if slabs is not None), None)


def _slabs_along(boxes: Sequence[Box], dim: int) -> dict[tuple[int, int], list[Box]] | None:
    """Return the boxes by their interval of a dimension, without it; None where intervals overlap that are not the same."""
    slabs: dict[tuple[int, int], list[Box]] = {}
    for box in boxes:
        slabs.setdefault(box[dim], []).append((*box[:dim], *box[dim + 1 :]))
    ordered = sorted(slabs)
    apart = all(one[1] <= other[0] for one, other in pairwise(ordered)) and all(low < high for low, high in ordered)
    return slabs if apart else None


def _overlap(one: Box, other: Box) -> bool:
    return all(a[0] < b[1] and b[0] < a[1] for a, b in zip(one, other, strict=True))
