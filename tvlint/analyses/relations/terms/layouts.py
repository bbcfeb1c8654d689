"""Terms in which it makes no difference in which layout values are computed: with which dimensions joined, in which order.

A view joins dimensions or splits them; what it gives is the joined dimensions of a term, and what splits a dimension
stands at the factors that have it (`sums_of_products.py`). An operator that is applied to every index of a dimension, or sums
over it, is the same operator on each part of the dimension and in any order of dimensions, and takes operands
without joined or permuted dimensions; dimensions that it needs whole are neither split nor brought into another order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from tvlint.analyses.relations.terms.constant_factors import Pattern, bare, renumbered, times
from tvlint.analyses.relations.terms.expressions import TooLargeError, finer, parts_of
from tvlint.analyses.relations.terms.joined_sums import Algebra
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_BY_ELEMENT_OR_ROW = (
    Trait.ACTIVATION,
    Trait.CLASS_LOSS,
    Trait.COMPARISON,
    Trait.CONVERSION,
    Trait.JOIN,
    Trait.MASKING,
    Trait.NORMALISATION,
    Trait.REDUCTION,
    Trait.SCALING,
    Trait.SOFTMAX,
    Trait.SUM,
)
"""Operators whose attributes say nothing of where dimensions are."""

Run = tuple[int, int]
"""So many dimensions in a row become so many others."""


def viewed(terms: Terms, term: int, runs: Sequence[Run], shape: tuple[int, ...], slot: int) -> int | None:
    """Return a view of the term; None where no form of it is known."""
    inner, constant = bare(terms, term)
    algebra = Algebra(terms)
    try:
        before, after = _places(algebra, inner, runs, shape)
        expression = algebra.placed(inner, before)
        found, factor = algebra.as_term(expression, [index for atoms in after for index in atoms or (-1,)])
        found = algebra.merged(found, [max(1, len(atoms)) for atoms in after])
    except TooLargeError:
        return None
    if (terms.shape[found], terms.slot[found]) != (shape, slot):
        return None
    return times(terms, times(terms, found, factor), constant)


def moved(terms: Terms, term: int, count: int, source: int, target: int) -> int | None:
    """Return the term with the outermost part of a dimension, `count` long, as that of another; None where it has no form."""
    inner, constant = bare(terms, term)
    shape, slot, algebra = terms.shape[inner], terms.slot[inner], Algebra(terms)
    if slot in (source, target) or shape[source] % count:
        return None
    runs = [(1, 2 if dim == source else 1) for dim in range(len(shape))]
    try:
        before, after = _places(algebra, inner, runs, (*shape[:source], count, shape[source] // count, *shape[source + 1 :]))
        expression, part = algebra.placed(inner, before), after.pop(source)
        after[target] = (*part, *after[target])
        found, factor = algebra.as_term(expression, [index for atoms in after for index in atoms or (-1,)])
        found = algebra.merged(found, [max(1, len(atoms)) for atoms in after])
    except TooLargeError:
        return None
    return times(terms, times(terms, found, factor), constant) if terms.slot[found] == slot else None


def with_unit(terms: Terms, term: int, dim: int) -> int | None:
    """Return the term with one more dimension, which is one long; None where it has no form."""
    inner, constant = bare(terms, term)
    shape, algebra = terms.shape[inner], Algebra(terms)
    try:
        before, after = _places(algebra, inner, [(1, 1)] * len(shape), shape)
        expression = algebra.placed(inner, before)
        found, factor = algebra.as_term(
            expression, [index for atoms in (*after[:dim], (), *after[dim:]) for index in atoms or (-1,)]
        )
        found = algebra.merged(found, [max(1, len(atoms)) for atoms in (*after[:dim], (), *after[dim:])])
    except TooLargeError:
        return None
    return times(terms, times(terms, found, factor), constant)


def is_foreign(terms: Terms, term: int) -> bool:
    """Return whether the reference has no multiple of a term, as it is or without the dimensions that are one long."""
    term, _ = bare(terms, term)
    if not terms.foreign(term):
        return False
    shape, slot = terms.shape[term], terms.slot[term]
    kept = [dim for dim, size in enumerate(shape) if size != 1 or dim == slot]
    if not kept or len(kept) == len(shape):
        return True
    starts = [0, *kept[1:], len(shape)]
    runs = [(after - before, 1) for before, after in pairwise(starts)]
    plain = viewed(terms, term, runs, tuple(shape[dim] for dim in kept), kept.index(slot) if slot >= 0 else -1)
    return plain is None or terms.foreign(bare(terms, plain)[0])


def _places(algebra: Algebra, term: int, runs: Sequence[Run], shape: tuple[int, ...]) -> tuple[list[Pattern], list[Pattern]]:
    """Return the indices of the dimensions before and after a view, which splits indices where either has an end."""
    slot, own_parts = algebra.terms.slot[term], parts_of(algebra.terms, term)
    before, after, fresh = list[Pattern](), list[Pattern](), 0
    for given, made in runs:
        dims = range(len(before), len(before) + given)
        sizes = finer([size for dim in dims for size in own_parts[dim]], [1, *shape[len(after) : len(after) + made]])
        indices = list(range(fresh, fresh + len(sizes)))
        algebra.sizes.update((index, (size, False)) for index, size in zip(indices, sizes, strict=True))
        fresh += len(indices)
        lengths = [algebra.terms.shape[term][dim] for dim in dims]
        before.extend(_cut(algebra, indices, lengths))
        after.extend(_cut(algebra, indices, shape[len(after) : len(after) + made]))
        for dim in dims:
            if dim == slot and before[dim]:
                algebra.sizes[before[dim][0]] = (algebra.sizes[before[dim][0]][0], True)
    before.extend(_cut(algebra, (), algebra.terms.shape[term][len(before) :]))  # of one element that becomes a number
    after.extend(_cut(algebra, (), shape[len(after) :]))  # the gradient of such a view
    return before, after


def _cut(algebra: Algebra, indices: Sequence[int], lengths: Sequence[int]) -> Iterator[Pattern]:
    """Yield the indices that make up dimensions of these lengths."""
    waiting = [index for index in indices if algebra.sizes[index][0] > 1]
    for length in lengths:
        taken = list[int]()
        while waiting and prod(algebra.sizes[index][0] for index in taken) < length:
            taken.append(waiting.pop(0))
        if prod(algebra.sizes[index][0] for index in taken) != length:
            raise TooLargeError
        yield tuple(taken)


def in_any_layout(
    terms: Terms, head: tuple[Any, ...], operands: Sequence[int]
) -> tuple[tuple[Any, ...], tuple[int, ...], tuple[int, ...], int, Callable[[int], int | None]] | None:
    """Return the operator on operands whose dimensions are neither joined nor permuted, and what makes its result of that.

    None where it is that already, or where the layout counts.
    """
    op, which, attributes, pattern, extra = head
    name = str(op).removesuffix(" gradient")
    *places, result = pattern[: len(operands) + 1]
    summed, averaged, whole = pattern[-3:]
    if not has_trait(name, *_BY_ELEMENT_OR_ROW) or len(pattern) != len(operands) + 4:
        return None
    known = {index for place in places for index in place}
    fresh = [index for index in result if index >= 0 and index not in known]
    if len(fresh) != len(extra) or not set(fresh) <= set(whole):
        return None
    algebra = Algebra(terms)
    algebra.split(zip(operands, places, strict=True))
    if any(index in algebra.parts for index in whole):
        return None
    algebra.sizes.update(zip(fresh, ((size, False) for size in extra), strict=True))
    plain, patterns = [], list[Pattern]()
    for term, each_place in zip(operands, places, strict=True):
        factor, at, constant = algebra.as_factor(algebra.of_term(term, each_place))
        plain.append(times(terms, factor, constant))
        patterns.append(at)
        if [index for index in at if index in whole] != [index for index in each_place if index in at and index in whole]:
            return None
    if (tuple(plain), patterns) == (tuple(operands), [tuple(place) for place in places]):
        return None
    left = {atom for index in result for atom in algebra.expanded(index)} - {-1}
    if [index for index in result if index in whole] != sorted(index for index in result if index in whole):
        return None
    order = [*dict.fromkeys(index for at in patterns for index in at if index in left), *fresh]
    left_out = left - set(order)
    if any(algebra.sizes[index] != (1, False) for index in left_out if index in algebra.sizes):
        return None
    if [index for index in order if index in whole] != [index for index in result if index in whole and index in order]:
        return None
    sets = [tuple(atom for index in each for atom in algebra.expanded(index)) for each in (summed, averaged, whole)]
    numbered = renumbered(*patterns, order, *sets)
    patterned = (*numbered[: len(patterns) + 1], *(tuple(sorted(atom)) for atom in numbered[-3:]))
    try:
        size, cut = algebra.extent(order)
    except TooLargeError:
        return None

    def back(made: int) -> int | None:
        inner, constant = bare(terms, made)
        try:
            expression = algebra.placed(inner, [(index,) for index in order])
            found, factor = algebra.laid_out(expression, [index if index not in left_out else -1 for index in result])
        except TooLargeError:
            return None
        return times(terms, times(terms, found, factor), constant)

    return (op, which, attributes, patterned, extra), tuple(plain), size, cut, back
