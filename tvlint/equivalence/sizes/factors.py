"""Sizes of dimensions as products of factors, some of which may be made smaller.

Two dimensions that are as long as each other, whatever the size is, have the same factors in the same order. A dimension that
is cut in four has the factor four, which is kept, before those of a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TypeAlias

SMALL = 4
"""A factor that may be made smaller is at most so large afterwards, unless less is asked for."""

Factors: TypeAlias = tuple[int, ...]
"""Factors by number, slowest first, as the elements of a row-major array are."""


class FactorTable:
    """Factors, which of them are one, into which others they were taken apart, and which keep their size."""

    def __init__(self, small: int = SMALL) -> None:
        self._small = small
        self._size: list[int] = []
        self._same: list[int] = []
        self._parts: dict[int, tuple[int, int]] = {}
        self._kept: set[int] = set()

    def new(self, size: int) -> Factors:
        """Return a dimension of one factor, or of none where it is one long."""
        if size == 1:
            return ()
        self._size.append(size)
        self._same.append(len(self._same))
        return (len(self._same) - 1,)

    def kept(self, size: int) -> Factors:
        """Return a dimension whose size stays."""
        made = self.new(size)
        self._kept.update(made)
        return made

    def keep(self, factors: Iterable[int]) -> None:
        """Let factors keep their size."""
        self._kept.update(self.leaves(factors))

    def leaves(self, factors: Iterable[int]) -> list[int]:
        """Return the factors as what they have been taken apart into."""
        found: list[int] = []
        stack = [*factors][::-1]
        while stack:
            root = self._root(stack.pop())
            if root in self._parts:
                stack.extend(reversed(self._parts[root]))
            else:
                found.append(root)
        return found

    def _root(self, factor: int) -> int:
        while self._same[factor] != factor:
            self._same[factor] = self._same[self._same[factor]]
            factor = self._same[factor]
        return factor

    def equate(self, one: Iterable[int], other: Iterable[int]) -> None:
        """Let the elements of both be the same in the same order; what has no common factors keeps its size."""
        here, there = self.leaves(one)[::-1], self.leaves(other)[::-1]
        while here and there:
            a, b = here[-1], there[-1]
            if self._size[a] < self._size[b]:
                here, there, a, b = there, here, b, a
            if self._size[a] % self._size[b]:
                break
            here.pop()
            there.pop()
            if a == b:
                continue
            if self._size[a] == self._size[b]:
                self._join(a, b)
                continue
            first, rest = self._apart(a, self._size[b])
            self._join(first, b)
            here.append(rest)
            here, there = (self.leaves(reversed(side))[::-1] for side in (here, there))
        self.keep((*here, *there))

    def _join(self, one: int, other: int) -> None:
        self._same[one] = other
        if one in self._kept:
            self._kept.add(other)

    def _apart(self, factor: int, size: int) -> tuple[int, int]:
        (first,), (rest,) = self.new(size), self.new(self._size[factor] // size)
        self._parts[factor] = (first, rest)
        if factor in self._kept:
            self._kept |= {first, rest}
        return first, rest

    def size(self, factors: Iterable[int]) -> int:
        """Return the size of a dimension in the plan."""
        return prod(self._size[factor] for factor in factors)

    def shrunk(self, factors: Iterable[int]) -> int:
        """Return the size that is left of a dimension."""
        sizes = ((leaf in self._kept, self._size[leaf]) for leaf in self.leaves(factors))
        return prod(size if is_kept else min(self._small, size) for is_kept, size in sizes)

    def cut(self, count: int, part: Sequence[int]) -> Factors:
        """Return the factors of what is so many parts in a row."""
        return (*self.kept(count), *part)
