"""Sums of products of factors, and how they become terms: what needs no arithmetic but that of constants.

`sums_of_products` says what expressions are for, and computes with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isinf, prod
from typing import Any

from tvlint.analyses.relations.terms.constant_factors import NONE, Constant, Pattern, bare
from tvlint.analyses.relations.terms.constants import inverse_of, product_of, totals_of
from tvlint.analyses.relations.terms.expressions import (
    FUNCTION,
    ONE,
    PAD,
    SUM_OF_PRODUCTS,
    TOTAL,
    Expression,
    Factor,
    TooLargeError,
    finer,
    is_flag,
    orders,
    parts_of,
)
from tvlint.analyses.relations.terms.loss_identities import is_restricted
from tvlint.analyses.relations.terms.signs import is_positive
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_MOST_ADDENDS = 64
_MOST_FACTORS = 64


def may_be_infinite(terms: Terms, *given: int, of_any: bool = False) -> bool:
    """Return whether what terms are made of may be infinite outside of a power of e: an infinite constant, or the logarithm of
    a flag or of what constants alone make, or one over that; with `of_any` of anything that is not known to be positive.
    """
    known = terms.infinite.setdefault(of_any, {})
    waiting = [term for term in given if term not in known]
    while waiting:
        term = waiting[-1]
        head, operands = terms.keys[term], terms.operands[term]
        itself = len(head) == 5 and any(isinstance(each, float) and isinf(each) for each in head[2])
        itself = itself or any(_may_be_zero(terms, operand, of_any) for operand in _asked(terms, term))
        below = () if itself or head == (FUNCTION, "exp") else operands
        left = [operand for operand in below if operand not in known]
        if left:
            waiting.extend(left)
        else:
            known[term] = itself or any(known[operand] for operand in below)
            waiting.pop()
    return any(known[term] for term in given)


def may_have_infinities(terms: Terms, factors: Sequence[Factor]) -> bool:
    """Return whether a product may be infinite, as `may_be_infinite` says of terms."""
    over_zero = any(power < 0 and _may_be_zero(terms, term) for term, _, power in factors)
    return over_zero or may_be_infinite(terms, *(term for term, _, _ in factors))


def is_finite(terms: Terms, term: int) -> bool:
    """Return whether nothing that a term is made of may be infinite, in a power of e neither, which may be zero then."""
    known, waiting = terms.finite, [term]
    while waiting:
        each = waiting[-1]
        below = [operand for operand in terms.operands[each] if operand not in known]
        if below:
            waiting += below
        else:
            all_below = all(known[operand] for operand in terms.operands[each])
            known[each] = all_below and not may_be_infinite(terms, each, of_any=True)
            waiting.pop()
    return known[term]


def may_vanish(terms: Terms, term: int) -> bool:
    """Return whether a sum that is positive wherever it has a value may be zero where powers of e in all of it are of minus
    infinity: the sum over a block of scores that are masked by what is infinite.
    """
    operands = iter(terms.operands[term])
    addends = [[is_finite(terms, next(operands)) for _ in factors] for factors in _products(terms, term)]
    return bool(addends) and not any(map(all, addends))


def _products(terms: Terms, term: int) -> list[Any]:
    """Return the factors of each product that a term is a sum of; none where it is no sum."""
    head = terms.keys[term]
    return [head[1]] if head[0] == TOTAL else [factors for _, factors in head[1]] if head[0] == SUM_OF_PRODUCTS else []


def _asked(terms: Terms, term: int) -> Iterator[int]:
    """Yield the operands of a term of which it is no number, or an infinite one, where they are zero."""
    head, operands = terms.keys[term], terms.operands[term]
    if head == (FUNCTION, "log") or (len(head) == 5 and is_restricted(terms, term)):
        yield from operands
    powers = [power for factors in _products(terms, term) for _, power in factors]
    yield from (operand for operand, power in zip(operands, powers, strict=False) if power < 0)


def _may_be_zero(terms: Terms, term: int, of_any: bool = False) -> bool:
    """Return whether a value is a flag, or made of constants alone, and not known to be positive; the last alone of any."""
    if of_any or may_vanish(terms, term):
        return not is_positive(terms, term) or may_vanish(terms, term)
    if is_flag(terms, term) or has_trait(str(terms.keys[term][0]), Trait.COMPARISON):
        return True
    waiting, seen = [] if is_positive(terms, term) else [term], {term}
    while waiting:
        each = waiting.pop()
        if not terms.operands[each] and len(terms.keys[each]) < 5 and not is_flag(terms, each):
            return False
        waiting += [operand for operand in terms.operands[each] if operand not in seen]
        seen.update(terms.operands[each])
    return not is_positive(terms, term)


@dataclass(frozen=True, slots=True)
class Sums:
    """Expressions over one table of terms; `sizes` are those of indices, and whether the batch is cut there."""

    terms: Terms
    sizes: dict[int, tuple[int, bool]] = field(default_factory=dict)
    parts: dict[int, Pattern] = field(default_factory=dict)
    """The indices that stand for one that some view splits."""

    def expanded(self, index: int) -> Pattern:
        """Return the indices that stand for an index."""
        return self.parts.get(index, (index,))

    def _at(self, place: int, places: Sequence[Pattern]) -> Pattern:
        return places[place] if place >= 0 else (-1,)

    def _inner_places(self, inner: int, counts: Sequence[int], places: Sequence[Pattern]) -> list[Pattern]:
        """Return the indices of the dimensions that are joined into others, `counts` of them into each."""
        sizes, slot = iter(self.terms.shape[inner]), self.terms.slot[inner]
        found: list[Pattern] = []
        for count, place in zip(counts, places, strict=True):
            left = list(place)
            if count == 1:
                next(sizes)
                found.append(place)
                continue
            for size in (next(sizes) for _ in range(count)):
                taken, total = list[int](), 1
                while total < size and left:
                    taken.append(left.pop(0))
                    total *= self.sizes[taken[-1]][0]
                if total != size:
                    raise TooLargeError
                found.append(tuple(taken))
        if slot >= 0 and not found[slot]:
            raise TooLargeError
        return found

    def number(self, constant: Constant) -> Expression:
        """Return a constant."""
        return ((constant, ()),) if constant[1] else ()

    def scaled(self, one: Expression, constant: Constant) -> Expression:
        """Return a multiple."""
        if not constant[1]:
            self._give_up_infinities(one)
            return ()
        return tuple((product_of(factor, constant), factors) for factor, factors in one)

    def added(self, *parts: Expression) -> Expression:
        """Return the sum."""
        known: dict[tuple[Factor, ...], list[Constant]] = {}
        for constant, factors in (addend for part in parts for addend in part):
            known.setdefault(factors, []).append(constant)
        if len(known) > _MOST_ADDENDS:
            raise TooLargeError
        found = []
        for factors, constants in known.items():
            totals = totals_of(constants)
            found += [(total, factors) for total in totals]
            if not totals:
                self._give_up_infinities(((NONE, factors),))
        return tuple(sorted(found, key=lambda addend: (addend[1], addend[0])))

    def _give_up_infinities(self, one: Expression) -> None:
        """Raise TooLargeError where what cancels out may be the logarithm of a flag or one over it, which is no number."""
        if any(may_have_infinities(self.terms, factors) for _, factors in one):
            raise TooLargeError

    def _is_joined(self, one: Expression) -> bool:
        """Return whether every addend is among zeros, so that the sum is values side by side."""
        return all(any(self.terms.keys[term][0] == PAD for term, _, _ in factors) for _, factors in one)

    def _has_flags(self, one: Expression, flags: Sequence[Factor]) -> bool:
        """Return whether every addend has these factors, all of which are flags, already."""
        if not all(is_flag(self.terms, term) for term, _, _ in flags):
            return False
        return all(set(flags) <= set(factors) for _, factors in one)

    def _powers(self, factors: Iterable[Factor]) -> tuple[Factor, ...]:
        """Return a product of powers with one power of each factor, or one below and one above a fraction's bar."""
        known: dict[tuple[int, Pattern, bool], Fraction] = {}
        for term, pattern, power in factors:
            if is_flag(self.terms, term):
                if power < 0:
                    raise TooLargeError
                known[term, pattern, True] = ONE
                continue
            key = (term, pattern, power.numerator > 0 or is_positive(self.terms, term))
            before = known.get(key)
            known[key] = power if before is None else before + power
        if len(known) > _MOST_FACTORS:
            raise TooLargeError
        return tuple(sorted((term, pattern, power) for (term, pattern, _), power in known.items() if power.numerator))

    def _is_sum(self, term: int, power: Fraction) -> bool:
        return self.terms.keys[term][0] == TOTAL and power == ONE

    def _summed(self, factors: Sequence[Factor], over: frozenset[int]) -> tuple[int, Pattern]:
        """Return the sum of a product over indices as a term, and the indices of its dimensions.

        In the term, indices that are left are numbered as its dimensions, and those that are summed from -2 downwards.
        """
        best: tuple[tuple[tuple[Pattern, Fraction], ...], list[Factor], list[int]] | None = None
        for ordered in orders(factors):
            left: dict[int, int] = {-1: -1}
            gone: dict[int, int] = {}
            for _, pattern, _ in ordered:
                for index in pattern:
                    if index in over:
                        gone.setdefault(index, -2 - len(gone))
                    else:
                        left.setdefault(index, len(left) - 1)
            head = tuple((tuple({**left, **gone}[index] for index in pattern), power) for _, pattern, power in ordered)
            if best is None or head < best[0]:
                best = head, ordered, [index for index in left if index >= 0]
        assert best is not None
        head, ordered, places = best
        shape, slot = self.extent(places)
        made = self.terms.term((TOTAL, head), tuple(term for term, _, _ in ordered), shape, slot)
        return made, tuple(places)

    def extent(self, places: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """Return the shape and the slot of a term whose dimensions are these indices."""
        cut = [dim for dim, index in enumerate(places) if self.sizes[index][1]]
        if len(cut) > 1:
            raise TooLargeError
        return tuple(self.sizes[index][0] for index in places), cut[0] if cut else -1

    def as_factor(self, one: Expression) -> tuple[int, Pattern, Constant]:
        """Return the expression as a constant times a term, its dimensions the indices that occur, in the order of factors."""
        if len(one) == 1 and len(one[0][1]) == 1 and one[0][1][0][2] == 1:
            ((constant, ((term, pattern, _),)),) = one
            return term, pattern, constant
        places = list(dict.fromkeys(i for _, factors in one for _, pattern, _ in factors for i in pattern if i >= 0))
        term, constant = self.as_term(one, places)
        return term, tuple(places), constant

    def _negative(self, term: int) -> int:
        """Return the negative of a sum whose first addend is taken as positive, of which there is a root."""
        shape, slot = self.terms.shape[term], self.terms.slot[term]
        head = (((-1, ONE), ((tuple(range(len(shape))), ONE),)),)
        return self.terms.term((SUM_OF_PRODUCTS, head), (term,), shape, slot)

    def _split_as(self, part: int, sizes: Sequence[int]) -> None:
        """Split an index into parts of these sizes. Raises TooLargeError where it is split in another way."""
        if len(sizes) > 1 and part not in self.parts:
            fresh = max([*self.sizes, -1]) + 1
            self.parts[part] = tuple(range(fresh, fresh + len(sizes)))
            self.sizes.update((fresh + place, (size, False)) for place, size in enumerate(sizes))
        if len(sizes) > 1 and [self.sizes[index][0] for index in self.parts[part]] != list(sizes):
            raise TooLargeError

    def _new_index(self, size: int) -> int:
        index = max([*self.sizes, -1]) + 1
        self.sizes[index] = (size, False)
        return index

    def _zeros_along(self, factors: Sequence[Factor], alone: bool) -> frozenset[int]:
        """Return the indices along which a product is among zeros, that other factors or values have too."""
        return frozenset(self._stands_along(factor, alone) for factor in factors) - {-1}

    def _stands_along(self, factor: Factor, alone: bool) -> int:
        """Return the index along which a factor is a value among zeros; -1 where it is none, or one alone, unless asked for."""
        term, pattern, power = factor
        head = self.terms.keys[term]
        if head[0] != PAD or power != ONE or pattern.count(pattern[head[1]]) != 1:
            return -1
        is_alone = self.terms.shape[self.terms.operands[term][0]][head[1]] == 1
        return -1 if is_alone and not alone else pattern[head[1]]

    def split(self, operands: Iterable[tuple[int, Sequence[int]]]) -> None:
        """Split indices as finely as any of the terms that have them joins their dimensions."""
        known: dict[int, tuple[tuple[int, ...], bool]] = {}
        for term, pattern in operands:
            slot = self.terms.slot[bare(self.terms, term)[0]]
            for dim, (index, sizes) in enumerate(zip(pattern, parts_of(self.terms, term), strict=True)):
                if index >= 0:
                    known[index] = finer(sizes, known[index][0] if index in known else sizes), dim == slot
        fresh = max([*known, -1]) + 1000
        self.sizes.update((index, (prod(sizes), cut)) for index, (sizes, cut) in known.items())
        for index, (sizes, cut) in known.items():
            if len(sizes) > 1:
                self.parts[index] = tuple(range(fresh, fresh + len(sizes)))
                self.sizes.update((fresh + place, (size, cut and not place)) for place, size in enumerate(sizes))
                fresh += len(sizes)

    def as_term(self, one: Expression, places: Sequence[int]) -> tuple[int, Constant]:
        """Return the expression as a constant times a term whose dimensions are these indices; -1 is one of size 1.

        Raises TooLargeError where it has other indices, too.
        """
        if not one:
            raise TooLargeError
        first = one[0][0]
        rest = [(product_of(constant, inverse_of(first)), factors) for constant, factors in one]
        named = {-1: -1, **{index: dim for dim, index in enumerate(places) if index >= 0}}
        shape = tuple(1 if index < 0 else self.sizes[index][0] for index in places)
        cut = [dim for dim, index in enumerate(places) if index >= 0 and self.sizes[index][1]]
        if len(cut) > 1 or not named.keys() >= {index for _, factors in rest for _, pattern, _ in factors for index in pattern}:
            raise TooLargeError
        slot = cut[0] if cut else -1
        head = tuple(
            (constant, tuple((tuple(named[index] for index in pattern), power) for _, pattern, power in factors))
            for constant, factors in rest
        )
        operands = tuple(term for _, factors in rest for term, _, _ in factors)
        if head == ((NONE, ()),):
            return self.terms.term(("one", shape, slot), (), shape, slot), first
        if len(operands) == len(head) == 1 and (self.terms.shape[operands[0]], self.terms.slot[operands[0]]) == (shape, slot):
            ((constant, factors),) = head
            in_place = all(dim in (at, -1) for at, dim in enumerate(factors[0][0]))  # -1 stands at dimensions that are one long
            if constant == NONE and factors[0][1] == ONE and in_place:
                return operands[0], first
        return self.terms.term((SUM_OF_PRODUCTS, head), operands, shape, slot), first
