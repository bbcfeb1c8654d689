"""Sums over ranges of an index that lie side by side, as one sum over all of them.

A rank sums what it holds of an index: powers of its scores, what its experts give, a block of keys. Where such sums are added,
to each other or over ranks, they are the sum over the ranges together, and over the index where these make it up. What is
summed over a range is written on that range's slices of weights and inputs, so that it is first written on these themselves,
with an index in the place of the range; that this is what it was is shown by slicing it again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from tvlint.analyses.relations.terms.constant_factors import NONE, Constant, Pattern, bare, rational
from tvlint.analyses.relations.terms.constants import inverse_of, product_of
from tvlint.analyses.relations.terms.expressions import (
    FUNCTION,
    ONE,
    SLICE,
    SUM_OF_PRODUCTS,
    TOTAL,
    Addend,
    Deeper,
    Expression,
    Factor,
    TooLargeError,
)
from tvlint.analyses.relations.terms.sums import may_be_infinite
from tvlint.analyses.relations.terms.sums_of_products import Products
from tvlint.analyses.relations.terms.terms import RangeOfSum, Widened

_MOST_MULTIPLIED_OUT = 16
_MOST_ADDENDS = 6
"""Of what has more addends no longer term is looked for: in deep models each layer adds to all before it."""


@dataclass(frozen=True, slots=True)
class _Part:
    """An addend that is a sum over a range: its place among the addends, its sign, and where the range begins and ends."""

    place: int
    sign: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Kind:
    """What addends have in common, but for a sign, that are sums of one value over ranges of an index, its last dimension."""

    constant: Constant
    others: tuple[Factor, ...]
    value: int
    of_value: Constant
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Algebra(Products):
    """Arithmetic on expressions over one table of terms, in which sums over ranges are put together where they are added."""

    def added(self, *parts: Expression) -> Expression:
        """Return the sum."""
        made = self._joined(Products.added(self, *parts))
        below = self._denominators(made) if 1 < len(made) <= _MOST_ADDENDS else ()
        if all({*below} <= {*factors} for _, factors in made):
            return made
        with suppress(TooLargeError):
            above = tuple((term, pattern, -power) for term, pattern, power in below)
            apart = [self._multiplied_out(constant, self._powers((*factors, *above))) for constant, factors in made]
            numerators = self._joined(Products.added(self, *apart), cancels=True)
            for factor in below:
                if self.terms.keys[factor[0]][0] == SUM_OF_PRODUCTS:
                    numerators = self._divided(numerators, factor)
            if len(numerators) <= len(made):
                found = tuple((constant, self._powers((*factors, *below))) for constant, factors in numerators)
                return self._joined(Products.added(self, found))
        return made

    def _divided(self, one: Expression, divisor: Factor) -> Expression:
        """Return a multiple of a sum as that multiple times the sum as one factor; what is no multiple of it as it is."""
        term, pattern, _ = divisor
        by, left, found = self.of_term(term, pattern), one, list[Addend]()
        first = max(by, key=lambda addend: _degrees(addend[1]))
        while left and len(found) < _MOST_MULTIPLIED_OUT:
            constant, factors = max(left, key=lambda addend: _degrees(addend[1]))
            rest = self._powers((*factors, *((each, places, -power) for each, places, power in first[1])))
            if any(power < 0 for _, _, power in rest):
                return one
            found.append((product_of(constant, inverse_of(first[0])), rest))
            taken = ((found[-1][0], rest),)
            left = Products.added(self, left, *(self.scaled(self._times(taken, addend), (-1, ONE)) for addend in by))
        return one if left else tuple((constant, self._powers((*factors, (term, pattern, ONE)))) for constant, factors in found)

    def _times(self, one: Expression, other: Addend) -> Expression:
        return tuple((product_of(constant, other[0]), self._powers((*factors, *other[1]))) for constant, factors in one)

    def _multiplied_out(self, constant: Constant, factors: Sequence[Factor]) -> Expression:
        """Return a product with the addends of its factors that are sums multiplied out."""
        found: Expression = ((constant, ()),)
        for factor in factors:
            each: Expression = ((NONE, (factor,)),)
            if self._is_to_take_apart(factor):
                each = tuple(more for inner in self.of_term(*factor[:2]) for more in self._multiplied_out(*inner))
            if len(found) * len(each) > _MOST_MULTIPLIED_OUT:
                raise TooLargeError
            found = tuple(product for addend in each for product in self._times(found, addend))
        return found

    def _joined(self, made: Expression, *, cancels: bool = False) -> Expression:
        """Return a sum with one addend for sums over ranges that lie side by side; with `cancels`, also of what one leaves."""
        if len(made) < 2:
            return made
        kinds: dict[_Kind, list[_Part]] = {}
        for place, number in self._sums_that_are_alike(made):
            for kind, part in self._kinds(made[place], place, number):
                if cancels or part.stop - part.start < self.terms.shape[kind.value][-1]:
                    kinds.setdefault(kind, []).append(part)
        for kind, found in kinds.items():
            runs = _runs(found)
            takes_away = len({part.sign for part in found}) > 1
            if takes_away and (not cancels or may_be_infinite(self.terms, kind.value)):
                continue
            if (len(runs), _length(runs)) < (len(found), _length([(part.start, part.stop, part.sign) for part in found])):
                gone = {part.place for part in found}
                rest = tuple(addend for place, addend in enumerate(made) if place not in gone)
                joined = Products.added(self, rest, *(self._sum_over(kind, *run) for run in runs))
                return self._joined(joined, cancels=cancels)
        return made

    def _sums_that_are_alike(self, one: Expression) -> Iterator[tuple[int, int]]:
        """Yield the factors, by addend and number, that are sums of as many factors as one that another addend has there."""
        found: dict[Hashable, list[tuple[int, int]]] = {}
        for place, (constant, factors) in enumerate(one):
            for number, (term, pattern, power) in enumerate(factors):
                if self._is_sum(term, power):
                    inner = tuple(sorted((len(places), exponent) for places, exponent in self.terms.keys[term][1]))
                    others = (*factors[:number], *factors[number + 1 :])
                    found.setdefault((constant[1], others, pattern, inner), []).append((place, number))
        for alike in found.values():
            yield from alike if len(alike) > 1 else ()

    def _kinds(self, addend: Addend, place: int, number: int) -> Iterator[tuple[_Kind, _Part]]:
        """Yield as what an addend is a sum over a range of an index, by one of its factors."""
        (sign, square), factors = addend
        term, pattern, _ = factors[number]
        others = (*factors[:number], *factors[number + 1 :])
        for value, of_value, start, stop in self._wider(term):
            yield _Kind((1, square), others, value, of_value, pattern), _Part(place, sign, start, stop)

    def _sum_over(self, kind: _Kind, start: int, stop: int, count: int) -> Expression:
        """Return the addends of a kind as one sum over a range, so many times."""
        size = self.terms.shape[kind.value][-1]
        index = self._new_index(size)
        value = self.scaled(self.of_term(kind.value, (*kind.pattern, index)), kind.of_value)
        if (start, stop) != (0, size):
            part = self._new_index(stop - start)
            value, index = self.sliced(value, index, start, stop, part), part
        constant = product_of(kind.constant, rational(count))
        return self.multiplied(((constant, kind.others),), self.total(value, frozenset({index})))

    def _wider(self, term: int) -> tuple[RangeOfSum, ...]:
        """Return the values that a sum adds up over ranges of their last dimensions, by each index that it sums."""
        known = self.terms.wider
        if term not in known:
            with self.terms.without_asking():
                known[term] = tuple(Algebra(self.terms)._as_ranges(term))
        return known[term]

    def _as_ranges(self, term: int) -> Iterator[RangeOfSum]:
        """Yield what `_wider` returns. It asks nothing of its operands, since it stands for values that have been asked."""
        shape, slot = self.terms.shape[term], self.terms.slot[term]
        places = list(range(len(shape)))
        self.sizes.update((dim, (size, dim == slot)) for dim, size in enumerate(shape))
        factors, summed = self._unfolded(term, [(dim,) for dim in places], frozenset())
        for index in sorted(index for index in summed if not self.sizes[index][1]):
            try:
                yield self._of_range(term, places, ((NONE, tuple(factors)),), index, summed)
            except TooLargeError:
                with suppress(TooLargeError):
                    value = self.total(((NONE, tuple(factors)),), summed - {index})
                    yield *self.as_term(value, [*places, index]), 0, self.sizes[index][0]

    def _of_range(self, term: int, places: Sequence[int], inner: Expression, index: int, summed: frozenset[int]) -> RangeOfSum:
        """Return the value that a sum adds up over a range of an index. Raises TooLargeError where it does over all of it."""
        whole, ranges = self._new_index(0), set[tuple[int, int, int]]()
        value = self.total(self._widened(inner, index, whole, ranges), summed - {index})
        ((start, stop, _),) = ranges
        made, constant = self.as_term(value, [*places, whole])
        again = self.total(self.sliced(value, whole, start, stop, index), frozenset({index}))
        if self.as_term(again, places) != (term, NONE):
            raise TooLargeError
        return made, constant, start, stop

    def all_of(self, term: int, dim: int, start: int, size: int) -> tuple[int, Constant] | None:
        """Return a term of which another is the indices from `start` on of a dimension of that size; None where none is known.

        It asks nothing of its operands, since the other has asked it of the indices that it has.
        """
        shape, slot = self.terms.shape[term], self.terms.slot[term]
        places, (inner, factor) = list(range(len(shape))), bare(self.terms, term)
        if slot == dim:
            return None
        with self.terms.without_asking(), suppress(TooLargeError):
            self.split([(inner, places)])
            given, whole, ranges = self.of_term(inner, places), self._new_index(size), set[tuple[int, int, int]]()
            value = self._widened(given, dim, whole, ranges)
            stop = start + shape[dim]
            if ranges - {(start, stop, size)} or self.sliced(value, whole, start, stop, dim) != given:
                return None
            made, constant = self.laid_out(value, [*places[:dim], whole, *places[dim + 1 :]])
            return made, product_of(constant, factor)
        return None

    def _widened(self, one: Expression, index: int, whole: int, ranges: set[tuple[int, int, int]]) -> Expression:
        """Return the expression with the index of which `index` is a range. Raises TooLargeError where it is none."""
        if len(one) > _MOST_ADDENDS:
            raise TooLargeError
        found: list[Expression] = []
        for constant, factors in one:
            made: Expression = ((constant, self._powers(factor for factor in factors if index not in factor[1])),)
            for term, pattern, power in factors:
                if index in pattern:
                    wider = self._widened_factor(term, pattern, index, whole, ranges)
                    made = self.multiplied(made, self._raised(wider, power))
            found.append(made)
        return Products.added(self, *found)

    def _widened_factor(
        self, term: int, pattern: Pattern, index: int, whole: int, ranges: set[tuple[int, int, int]]
    ) -> Expression:
        """Return a factor on what it takes ranges of, with all of the index."""
        if pattern.count(index) > 1:
            raise TooLargeError
        found = self._widened_term(term, pattern.index(index))
        if found is None:
            raise TooLargeError
        made, constant, taken = found
        ranges.add(taken)
        if len(ranges) > 1:
            raise TooLargeError
        self.sizes[whole] = (taken[2], False)
        return self.scaled(self.of_term(made, [whole if place == index else place for place in pattern]), constant)

    def _widened_term(self, term: int, dim: int) -> Widened | None:
        """Return a term on what it takes ranges of, with all of a dimension, found once for all that have it as a factor."""
        known, key = self.terms.widened, (term, dim)
        if key not in known:
            known[key] = None
            with suppress(TooLargeError), Deeper(self.terms):
                known[key] = Algebra(self.terms)._widen(term, dim)
        return known[key]

    def _widen(self, term: int, dim: int) -> Widened:
        """Return what `_widened_term` does. Raises TooLargeError where no term is known."""
        head, operands = self.terms.keys[term], self.terms.operands[term]
        if head[0] == SLICE and head[1] == dim:
            return operands[0], NONE, (head[2], head[3], self.terms.shape[operands[0]][dim])
        shape, slot = self.terms.shape[term], self.terms.slot[term]
        places, ranges = [(place,) for place in range(len(shape))], set[tuple[int, int, int]]()
        self.sizes.update((place, (size, place == slot)) for place, size in enumerate(shape))
        whole = self._new_index(0)
        if head[0] == TOTAL:
            inner, gone = self._unfolded(term, places, frozenset())
            value = self.total(self._widened(((NONE, tuple(inner)),), dim, whole, ranges), gone)
        elif head[0] == FUNCTION:
            below, constant = bare(self.terms, operands[0])
            value = self._widened(self.scaled(self.placed(below, places), constant), dim, whole, ranges)
            value = self._applied(head[1], value)
        elif head[0] == SUM_OF_PRODUCTS:
            value = self._widened(self.placed(term, places), dim, whole, ranges)
        else:
            raise TooLargeError
        if not ranges:
            raise TooLargeError
        (taken,) = ranges
        made, constant = self.as_term(value, [*range(dim), whole, *range(dim + 1, len(shape))])
        return made, constant, taken


def _degrees(factors: Sequence[Factor]) -> list[Factor]:
    """Return what puts products in an order that stays when all of them are multiplied with one more factor."""
    return sorted(factors, reverse=True)


def _length(runs: Sequence[tuple[int, int, int]]) -> int:
    """Return how many indices are added in all, which is less where some cancel out."""
    return sum((stop - start) * abs(count) for start, stop, count in runs)


def _runs(parts: Sequence[_Part]) -> list[tuple[int, int, int]]:
    """Return the ranges that are added, with how often each is, where that is not zero; the longest that are added as often."""
    runs: list[tuple[int, int, int]] = []
    for start, stop in pairwise(sorted({end for part in parts for end in (part.start, part.stop)})):
        count = sum(part.sign for part in parts if part.start <= start and stop <= part.stop)
        if runs and runs[-1][1:] == (start, count):
            runs[-1] = runs[-1][0], stop, count
        elif count:
            runs.append((start, stop, count))
    return runs
