"""Terms whose dimensions have indices of an expression: what they are made of, as factors and as sums of products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

from tvlint.analyses.relations.terms.constant_factors import NONE, Constant, Pattern, bare, renumbered, times
from tvlint.analyses.relations.terms.expressions import (
    FUNCTION,
    MERGE,
    ONE,
    PLACE,
    SPLIT,
    SUM_OF_PRODUCTS,
    TOTAL,
    Expression,
    Factor,
    TooLargeError,
)
from tvlint.analyses.relations.terms.signs import is_positive
from tvlint.analyses.relations.terms.sums import Sums, is_finite
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

FOUND = "every index at which a plan looks something up is one of the places that are there"


@dataclass(frozen=True, slots=True)
class TermsAtIndices(Sums):
    """Expressions of terms, of which every dimension has an index, or as many as the finest view of it has dimensions."""

    def of_term(self, term: int, pattern: Sequence[int]) -> Expression:
        """Return a term whose dimensions have these indices, or what these are split into."""
        return self.of_places(term, [self.expanded(index) for index in pattern])

    def of_places(self, term: int, places: Sequence[Pattern]) -> Expression:
        """Return a term each of whose dimensions has so many indices."""
        term, constant = bare(self.terms, term)
        return self.scaled(self.placed(term, places), constant)

    def alone(self, one: Expression) -> Expression:
        """Return the expression as one addend: what all addends have in common stands before the rest of their sum."""
        if len(one) == 1:
            return one
        common = frozenset.intersection(*(frozenset(factors) for _, factors in one)) if one else frozenset()
        below = self._denominators(one)
        common -= {*below}
        above = [(term, pattern, -power) for term, pattern, power in below]
        left = [(constant, [factor for factor in factors if factor not in common]) for constant, factors in one]
        rest = self.added(*(self._with_sum_apart(constant, self._powers((*factors, *above))) for constant, factors in left))
        if len(rest) == 1:
            ((constant, alone),) = rest
        else:
            term, pattern, constant = self.as_factor(rest)
            alone = ((term, pattern, ONE),)
        return ((constant, self._powers((*common, *below, *alone))),)

    def _with_sum_apart(self, constant: Constant, factors: tuple[Factor, ...]) -> Expression:
        """Return a product, or the addends of the sum that it is a multiple of."""
        if len(factors) == 1 and self._is_to_take_apart(factors[0]):
            return self.scaled(self.of_term(*factors[0][:2]), constant)
        return ((constant, factors),)

    def _is_to_take_apart(self, factor: Factor) -> bool:
        return factor[2] == ONE and self.terms.keys[factor[0]][0] == SUM_OF_PRODUCTS

    def _denominators(self, one: Expression) -> list[Factor]:
        """Return by what positive numbers addends are divided: the lowest powers of them."""
        powers: dict[tuple[int, Pattern], list[Fraction]] = {}
        for _, factors in one:
            for term, pattern, power in factors:
                powers.setdefault((term, pattern), []).append(power)
        return [
            (term, pattern, low)
            for (term, pattern), found in powers.items()
            if (low := min(found)) < 0 and low.denominator == 1
            if is_positive(self.terms, term) and is_finite(self.terms, term)
        ]

    def placed(self, term: int, places: Sequence[Pattern]) -> Expression:
        """Return a term, without a constant factor, each of whose dimensions has so many indices."""
        terms = self.terms
        head, (inner, *_) = terms.keys[term], terms.operands[term] or (term,)
        if head[0] == MERGE:
            return self.placed(inner, self._inner_places(inner, head[1], places))
        if head[0] == "one":
            return ((NONE, ()),)
        if not terms.operands[term] and has_trait(str(head[0]), Trait.FILLED) and head[2][0] in (0, 1) and head[2][1] != "bool":
            return ((NONE, ()),) if head[2][0] else ()
        if head[0] != SUM_OF_PRODUCTS:
            return ((NONE, (self._factor(term, places, ONE),)),)
        operands = iter(terms.operands[term])

        def factor(pattern: Pattern, power: Fraction) -> Factor:
            return self._factor(next(operands), [self._at(place, places) for place in pattern], power)

        return tuple((constant, tuple(factor(*each_factor) for each_factor in factors)) for constant, factors in head[1])

    def _factor(self, term: int, places: Sequence[Pattern], power: Fraction) -> Factor:
        """Return a factor whose dimensions have so many indices."""
        terms = self.terms
        if all(len(place) <= 1 for place in places):
            pattern = []
            for dim, each_place in enumerate(places):
                size, cut = terms.shape[term][dim], dim == terms.slot[term]
                if cut and not each_place:
                    raise TooLargeError
                pattern.append(each_place[0] if each_place and (size != 1 or cut) else -1)
                if pattern[-1] >= 0:
                    self.sizes[pattern[-1]] = (size, cut)
            return term, tuple(pattern), power
        for dim, each_place in enumerate(places):
            if len(each_place) == 1 and each_place[0] >= 0:
                self.sizes.setdefault(each_place[0], (terms.shape[term][dim], dim == terms.slot[term]))
        flat = [index for place in places for index in place]
        if -1 in flat or len({*flat}) < len(flat):
            return self._split_factor(term, places, power)
        key = term, tuple(tuple(self.sizes[index] for index in place) for place in places)
        if key not in terms.splits:
            made, pattern_of, _ = self._split_factor(term, places, power)
            terms.splits[key] = made, tuple(-1 if index < 0 else flat.index(index) for index in pattern_of)
        made, dims = terms.splits[key]
        return made, tuple(-1 if dim < 0 else flat[dim] for dim in dims), power

    def _split_factor(self, term: int, places: Sequence[Pattern], power: Fraction) -> Factor:
        """Return a factor of which some dimensions have several indices, or none."""
        terms = self.terms
        head, operands = terms.keys[term], terms.operands[term]
        if head[0] == TOTAL:
            inner, gone = self._unfolded(term, places, frozenset())
            return (*self._summed(inner, gone), power)
        if head == PLACE:
            return self._place_of(self._factor(operands[0], places[:-1], ONE), places[-1], term in terms.within)
        if head[0] == FUNCTION:
            ((_, ((made, pattern_of, _),)),) = self._applied(head[1], self.of_places(operands[0], places))
            return made, pattern_of, power
        if self._is_conversion(term):
            return self._converted(head, self.of_places(operands[0], places), power)
        if head[0] == SPLIT:
            waiting = iter(places)
            (base,) = operands
            return self._factor(base, [tuple(i for _ in range(count) for i in next(waiting)) for count in head[1]], power)
        return self._as_split(term, places, power)

    def _as_split(self, term: int, places: Sequence[Pattern], power: Fraction) -> Factor:
        """Return a term as a factor that has the indices into which its dimensions are split."""
        kept = [tuple(index for index in place if index >= 0 and self.sizes[index] != (1, False)) for place in places]
        flat, counts = tuple(index for atom in kept for index in atom), tuple(map(len, kept))
        return self.terms.term((SPLIT, counts), (term,), *self.extent(flat)), flat, power

    def place_of(self, term: int, pattern: Sequence[int], index: int, *, looked_up: bool = False) -> Expression:
        """Return the factor that is one where the elements of a term are the place along an index.

        Where the reference looks something up there, they are one of the places: it would fail elsewhere. That what another
        plan looks up is there too is assumed.
        """
        ((constant, factors),) = self.alone(self.of_term(term, pattern))
        if constant != NONE or len(factors) != 1 or factors[0][2] != ONE or self.sizes[index][1]:
            raise TooLargeError
        found = self._place_of(factors[0], self.expanded(index), looked_up and self.terms.sealed < 0)
        if looked_up and found[0] not in self.terms.within:
            self.terms.assumptions.add(FOUND)
        return ((NONE, (found,)),)

    def _place_of(self, factor: Factor, places: Pattern, within: bool) -> Factor:
        (term, pattern, _), terms = factor, self.terms
        if not places or min(places) < 0:
            raise TooLargeError
        size = prod(self.sizes[index][0] for index in places)
        made = terms.term(PLACE, (term,), (*terms.shape[term], size), terms.slot[term])
        if within:
            terms.within.add(made)
        return (
            (made, (*pattern, *places), ONE)
            if len(places) == 1
            else self._as_split(made, [*((i,) for i in pattern), places], ONE)
        )

    def _applied(self, name: str, one: Expression) -> Expression:
        term, pattern, constant = self.as_factor(one)
        inner = times(self.terms, term, constant)
        if name == "log" and not (constant[0] > 0 and is_positive(self.terms, term)):
            self.terms.require("positive", inner)
        made = self.terms.term((FUNCTION, name), (inner,), self.terms.shape[term], self.terms.slot[term])
        return ((NONE, ((made, pattern, ONE),)),)

    def _is_conversion(self, term: int) -> bool:
        """Return whether a term is another one as numbers of another type, or a gradient of that: element by element."""
        head, dims = self.terms.keys[term], tuple(range(len(self.terms.shape[term])))
        by_element = len(head) == 5 and head[3:] == ((dims, dims, (), (), ()), ())
        return by_element and has_trait(str(head[0]).removesuffix(" gradient"), Trait.CONVERSION)

    def _converted(self, head: tuple[Any, ...], one: Expression, power: Fraction) -> Factor:
        """Return a value as numbers of another type as a factor, whose dimensions are those that the value has."""
        term, pattern, constant = self.as_factor(one)
        places = [index for index in pattern if index >= 0]
        at, made = renumbered(pattern, places)
        value = times(self.terms, term, constant)
        found = self.terms.term((*head[:3], (at, made, (), (), ()), ()), (value,), *self.extent(places))
        return found, tuple(places), power

    def _unfolded(self, term: int, places: Sequence[Pattern], over: frozenset[int]) -> tuple[list[Factor], frozenset[int]]:
        """Return the factors of a sum whose dimensions have so many indices, and all indices that it and `over` sum."""
        fresh = max([*self.sizes, -1]) + 1
        inner, gone = [], set(over)
        for operand, (pattern, power) in zip(self.terms.operands[term], self.terms.keys[term][1], strict=True):
            moved: list[Pattern] = []
            for dim, place in enumerate(pattern):
                if place < -1:
                    index = fresh - 2 - place
                    self.sizes[index] = (self.terms.shape[operand][dim], dim == self.terms.slot[operand])
                    gone.add(index)
                    moved.append((index,))
                else:
                    moved.append(self._at(place, places))
            inner.append((operand, moved, power))
        return [self._factor(*each) for each in inner], frozenset(gone)
