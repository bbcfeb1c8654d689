"""Expressions: sums of addends, each a constant times powers of factors; and the terms that only they have.

`sums_of_products` says what they are for, and computes with them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise, permutations, product
from math import factorial, prod
from typing import TypeAlias

from tvlint.analyses.relations.terms.constant_factors import NONE, Constant, Pattern, bare
from tvlint.analyses.relations.terms.terms import Terms

Factor: TypeAlias = tuple[int, Pattern, Fraction]
"""A term, the index of each of its dimensions (-1 for one of size 1), and the power."""

Addend: TypeAlias = tuple[Constant, tuple[Factor, ...]]
Expression: TypeAlias = tuple[Addend, ...]

SUM_OF_PRODUCTS, TOTAL, FUNCTION, CIRCLE = "sum-of-products", "total", "function", "pi"
MERGE, SPLIT = "merged-dimensions", "split-dimensions"
"""Views: dimensions in a row as one, and one dimension as several."""

SLICE, PAD = "some-indices", "among-zeros"
"""Some indices of a dimension, and a value among zeros along one."""

FLAG = "factor-of-flags"
"""One where a flag is set and zero where it is not; the other way round where the head says so."""

SLOT: tuple[object, ...] = ("one-of-each-row",)
"""One for each row of a slot: what counts them, since a plan does not say how many slots there are."""

PLACE: tuple[object, ...] = (FLAG, False, "place")
"""One where the elements of a term, which are whole numbers, are the place along the last dimension."""

BAND = "band"
"""The name of a flag that says of row `r` and column `c` whether `c - r` is at least a number, which is one or more."""

ONE = NONE[1]

_MOST_TIES = 24
_DEEPEST = 100
"""So many levels of what a term is made of are taken apart at once, and no more."""


class TooLargeError(Exception):
    """The expression is left as it is: it has too many addends or factors, or something whose size is not known here."""


class Deeper:
    """One level more of what a term is made of. Raises TooLargeError where it is one too many."""

    __slots__ = ("terms",)

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    def __enter__(self) -> None:
        if self.terms.nesting == _DEEPEST:
            raise TooLargeError
        self.terms.nesting += 1

    def __exit__(self, *raised: object) -> None:
        self.terms.nesting -= 1


def is_flag(terms: Terms, term: int) -> bool:
    """Return whether every element of the term is one or zero: it is a flag, or some of the indices of one."""
    while terms.keys[term][0] == SLICE:
        (term,) = terms.operands[term]
    return bool(terms.keys[term][0] == FLAG)


def is_joined(terms: Terms, term: int, dims: Collection[int]) -> bool:
    """Return whether the term is values side by side along one of these dimensions: a sum of values among zeros."""
    term, _ = bare(terms, term)
    head = terms.keys[term]
    if head[0] != SUM_OF_PRODUCTS:
        return head[0] == PAD and head[1] in dims
    operands = iter(terms.operands[term])
    addends = [[(terms.keys[next(operands)], pattern) for pattern, _ in factors] for _, factors in head[1]]
    return all(any(below[0] == PAD and pattern[below[1]] in dims for below, pattern in addend) for addend in addends)


def parts_of(terms: Terms, term: int) -> list[tuple[int, ...]]:
    """Return the sizes that each dimension of a term is put together of."""
    term, _ = bare(terms, term)
    head, shape = terms.keys[term], terms.shape[term]
    if head[0] != MERGE:
        return [(size,) for size in shape]
    sizes = iter(terms.shape[terms.operands[term][0]])
    return [tuple(next(sizes) for _ in range(count)) for count in head[1]]


def split_runs(terms: Terms, term: int) -> frozenset[Pattern]:
    """Return the dimensions in a row of a term that are parts of one dimension of something that it is made of.

    What a term is made of is asked first, without going into itself: a term is as deep as a plan is long.
    """
    left = [term]
    while term not in terms.runs:
        made_of = list(zip(terms.operands[left[-1]], _patterns(terms, left[-1]), strict=False))
        if below := [operand for operand, _ in made_of if operand not in terms.runs]:
            left += below
        else:
            last = left.pop()
            terms.runs[last] = _runs_from(terms, last, made_of)
    return terms.runs[term]


def _runs_from(terms: Terms, term: int, made_of: Iterable[tuple[int, Pattern]]) -> frozenset[Pattern]:
    counts = terms.keys[term][1] if terms.keys[term][0] == SPLIT else ()
    found = {tuple(range(end - count, end)) for end, count in zip(accumulate(counts), counts, strict=True) if count > 1}
    for operand, pattern in made_of:
        runs = [tuple(pattern[dim] for dim in run) for run in terms.runs[operand]]
        found.update(run for run in runs if min(run) >= 0)
    return frozenset(found)


def _patterns(terms: Terms, term: int) -> list[Pattern]:
    """Return which dimensions of a term the dimensions of its operands are; nothing where that is not known here."""
    head = terms.keys[term]
    if head[0] in (FUNCTION, "times"):
        return [tuple(range(len(terms.shape[term])))]
    factors = head[1] if head[0] == TOTAL else ()
    if head[0] == SUM_OF_PRODUCTS:
        factors = [factor for _, each in head[1] for factor in each]
    return [pattern for pattern, _ in factors]


def finer(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of a dimension that is cut wherever one of two ways to put it together cuts it."""
    ends = sorted({prod(sequence[place:]) for sequence in (one, other) for place in range(len(sequence))})
    if prod(one) != prod(other) or any(high % low for low, high in pairwise(ends)):
        raise TooLargeError
    return tuple(high // low for low, high in pairwise((1, *ends)))[::-1]


def between(ranges: Sequence[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """Return the ranges, each a start and a size, that others leave of a dimension."""
    ends = [0, *(start + length for start, length in ranges)]
    starts = [*(start for start, _ in ranges), size]
    return [(low, high - low) for low, high in zip(ends, starts, strict=True) if high > low]


def orders(factors: Sequence[Factor]) -> Iterable[list[Factor]]:
    """Return the factors in the order of their terms and powers; in all orders of those that are alike, if these are few."""
    if len(factors) < 2:
        return [[*factors]]
    groups: dict[tuple[int, Fraction], list[Factor]] = {}
    for factor in sorted(factors):
        groups.setdefault((factor[0], factor[2]), []).append(factor)
    if prod(factorial(len(group)) for group in groups.values()) > _MOST_TIES:
        return [[factor for group in groups.values() for factor in group]]
    ordered = product(*(permutations(group) for _, group in sorted(groups.items())))
    return [[factor for group in each for factor in group] for each in ordered]
