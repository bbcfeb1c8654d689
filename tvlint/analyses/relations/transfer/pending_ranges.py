"""Pending sums as ranges of indices, and how ranges join."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from tvlint.analyses.relations.transfer.boxes import are_disjoint

Coefficient: TypeAlias = "int | Fraction"


class Pending(NamedTuple):
    """Indices `low:high` of `size` of summed dimension `number` of term `origin`, over one or all replicas, micro-batches."""

    origin: int
    number: int
    low: int
    high: int
    size: int
    one_replica: bool
    one_micro_batch: bool

    def complete(self) -> bool:
        """Return whether nothing is left to sum."""
        return self.low == 0 and self.high == self.size and not self.one_replica and not self.one_micro_batch


Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Half-open intervals, ascending, that neither overlap nor touch."""


def united(*parts: Ranges) -> Ranges:
    """Return the indices that are in any of the parts."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(interval for part in parts for interval in part):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        elif low < high:
            found.append((low, high))
    return tuple(found)


def overlapping(one: Ranges, other: Ranges) -> bool:
    """Return whether some index is in both."""
    return any(a[0] < b[1] and b[0] < a[1] for a in one for b in other)


def tiled(entries: Sequence[tuple[Coefficient, frozenset[Pending]]]) -> list[tuple[Coefficient, frozenset[Pending]]] | None:
    """One entry for all of them when their ranges tile one range with one coefficient.

    A sum that an entry does not leave open is whole in it.
    """
    if len(entries) < 2:
        return None
    coefficient = entries[0][0]
    sums = {entry._replace(low=0, high=entry.size) for _, pending in entries for entry in pending}
    bounds: dict[tuple[int, int, int, bool, bool], list[tuple[int, int]]] = {}
    for range_of_entry, pending in entries:
        held = {entry._replace(low=0, high=entry.size): (entry.low, entry.high) for entry in pending}
        lacking = sums - held.keys()
        if range_of_entry != coefficient or len(held) != len(pending) or not all(one.complete() for one in lacking):
            return None
        for one in sums:
            key = (one.origin, one.number, one.size, one.one_replica, one.one_micro_batch)
            bounds.setdefault(key, []).append(held.get(one, (0, one.size)))
    if len({(one.origin, one.number) for one in sums}) != len(sums):
        return None
    cells = [tuple(ranges[i] for ranges in bounds.values()) for i in range(len(entries))]
    outer = [(min(low for low, _ in ranges), max(high for _, high in ranges)) for ranges in bounds.values()]
    if sum(_volume(cell) for cell in cells) != _volume(tuple(outer)):
        return None
    if not are_disjoint(cells):
        return None
    joined = (
        Pending(origin, number, low, high, size, replica, micro)
        for (origin, number, size, replica, micro), (low, high) in zip(bounds, outer, strict=True)
    )
    return [(coefficient, frozenset(entry for entry in joined if not entry.complete()))]


def _volume(cell: tuple[tuple[int, int], ...]) -> int:
    result = 1
    for low, high in cell:
        result *= high - low
    return result
