"""Flat buffers of n rows in which each column is one weight, cut along its first dimension: those of `fully_shard`.

Row r of the buffer holds the r-th part of each weight, one after the other. A gather of the rows is a gather of each weight
along its first dimension, and a reduction that scatters them is one of each gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod


@dataclass(frozen=True, slots=True)
class Column:
    """A value whose parts are one column, and the number of elements of one part."""

    value: str
    count: int


@dataclass(slots=True)
class Columns:
    """The columns of buffers, by storage and by the place at which each begins in the first row."""

    known: dict[int, dict[int, Column]] = field(default_factory=dict)

    def put(self, storage: int, place: int, column: Column) -> None:
        """Say what a column of a buffer is."""
        self.known.setdefault(storage, {})[place] = column

    def forget(self, storage: int) -> None:
        """Forget the columns of a buffer that is written to."""
        self.known.pop(storage, None)

    def tiling(self, storage: int, low: int, width: int) -> list[tuple[int, Column]] | None:
        """Return the columns, with their places, of rows of this width; None where they are not all known."""
        columns, found, at = self.known.get(storage, {}), list[tuple[int, Column]](), low
        while at < low + width:
            column = columns.get(at)
            if column is None or not column.count:
                return None
            found.append((at, column))
            at += column.count
        return found if at == low + width else None


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a tensor that lies in one piece."""
    return tuple(prod(shape[place + 1 :]) for place in range(len(shape)))
