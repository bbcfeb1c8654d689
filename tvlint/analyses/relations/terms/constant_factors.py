"""Constant factors of terms, and the indices of their dimensions in the order in which they appear.

A constant is stated by its square and its sign, so that `1 / sqrt(d)` is exact; a number of a plan that is the double nearest
to the root of a small fraction is that root.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from tvlint.analyses.relations.terms.numbers import square_of
from tvlint.analyses.relations.terms.terms import Terms

Pattern: TypeAlias = tuple[int, ...]
"""An index for every dimension; -1 for one of size 1 that stands for nothing."""

TIMES = "times"

Constant: TypeAlias = tuple[int, Fraction]
"""Sign and square."""

NONE: Constant = (1, Fraction(1))
"""The constant that changes nothing."""


def constant_of(value: Any) -> Constant | None:
    """Return the number as its sign and square; None where it is no finite number."""
    square = square_of(value)
    return None if square is None else ((-1 if value < 0 else 1), square)


def rational(value: int | Fraction) -> Constant:
    """Return the number as its sign and square."""
    return (-1 if value < 0 else 1), Fraction(value) ** 2


def times(terms: Terms, term: int, constant: Constant) -> int:
    """Return the term times the constant."""
    sign, square = constant
    if terms.keys[term][0] == TIMES:
        _, before, other = terms.keys[term]
        (term,) = terms.operands[term]
        sign, square = sign * before, square * other
    if (sign, square) == NONE:
        return term
    return terms.term((TIMES, sign, square), (term,), terms.shape[term], terms.slot[term])


def bare(terms: Terms, term: int) -> tuple[int, Constant]:
    """Return the term without its constant factor, and that."""
    head = terms.keys[term]
    return (terms.operands[term][0], (head[1], head[2])) if head[0] == TIMES else (term, NONE)


def renumbered(*tensors: Sequence[int]) -> tuple[Pattern, ...]:
    """Return the indices in the order in which they appear."""
    numbers = {-1: -1}
    for tensor in tensors:
        for number in tensor:
            numbers.setdefault(number, len(numbers) - 1)
    return tuple(tuple(numbers[number] for number in tensor) for tensor in tensors)
