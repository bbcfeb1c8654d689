"""Ranges of lines, and whether one of many meets another."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import TypeAlias

Lines: TypeAlias = tuple[int, int]
"""The first and the last line."""


class Intervals:
    """Many ranges, sorted once."""

    def __init__(self, lines: Iterable[Lines]) -> None:
        ordered = sorted(lines)
        self._firsts = [first for first, _ in ordered]
        self._furthest = list(accumulate((last for _, last in ordered), max))

    def meet(self, lines: Lines) -> bool:
        """Return whether one of the ranges has a line in common with `lines`."""
        first, last = lines
        before = bisect_right(self._firsts, last)
        return before > 0 and self._furthest[before - 1] >= first
