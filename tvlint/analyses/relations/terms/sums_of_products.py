"""Terms as sums of products: a normal form in which it makes no difference in which operators arithmetic is written.

An expression is a sum of addends, each a constant times powers of factors. A factor is a term whose dimensions carry indices
of the expression; one that lacks an index is the same for all of its values. With that

- products, quotients, powers, roots, transposes, and what is repeated along a dimension are addends;
- sums over indices are factors: what is the same along the index stands before the sum, and a sum of addends that are no
  products is taken addend by addend;
- `exp(a + b)` is `exp(a) exp(b)`, and the logarithm of a product of powers of positive factors is the sum of their logarithms.

Powers of one factor are one power where their signs are alike, or where the factor is positive; roots of products are products
of roots where all factors are positive. So nothing is cancelled that may be zero, and no sign is lost.

A form may have a value where what it is made of has none: `x` for the square of the root of `x`, `x` for `x + y - y` with a
`y` that is a logarithm. Every root, quotient and logarithm therefore notes what it asks of its operand (`Terms.require`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import permutations, product
from math import isqrt
from typing import TypeAlias

from tvlint.analyses.relations.terms.product_normal_form import NONE, Constant, bare, times
from tvlint.analyses.relations.terms.terms import Terms

Pattern: TypeAlias = tuple[int, ...]
Factor: TypeAlias = tuple[int, Pattern, Fraction]
"""A term, the index of each of its dimensions (-1 for one of size 1), and the power."""

Addend: TypeAlias = tuple[Constant, tuple[Factor, ...]]
Expression: TypeAlias = tuple[Addend, ...]

SUM_OF_PRODUCTS, TOTAL, FUNCTION, CIRCLE = "sum-of-products", "total", "function", "pi"
ONE = Fraction(1)

_MOST_ADDENDS = 64
_MOST_POWERS = 4
_MOST_TIES = 24
_ANY, _NOT_NEGATIVE, _POSITIVE = range(3)


class TooLargeError(Exception):
    """The expression is left as it is: it has too many addends, or something whose size is not known here."""


@dataclass(frozen=True, slots=True)
class Algebra:
    """Arithmetic on expressions over one table of terms; `sizes` are those of indices, and whether the batch is cut there."""

    terms: Terms
    sizes: dict[int, tuple[int, bool]] = field(default_factory=dict)

    def of_term(self, term: int, pattern: Sequence[int]) -> Expression:
        """Return a term whose dimensions have these indices."""
        terms = self.terms
        term, constant = bare(terms, term)
        if not constant[1]:
            return ()
        placed = []
        for dim, index in enumerate(pattern):
            size, cut = terms.shape[term][dim], dim == terms.slot[term]
            placed.append(index if size != 1 or cut else -1)
            if placed[-1] >= 0:
                self.sizes[index] = (size, cut)
        head = terms.keys[term]
        if head[0] != SUM_OF_PRODUCTS:
            return ((constant, ((term, tuple(placed), ONE),)),)
        operands = iter(terms.operands[term])
        found = []
        for own, factors in head[1]:
            moved = tuple(
                (next(operands), tuple(-1 if place < 0 else placed[place] for place in places), power)
                for places, power in factors
            )
            found.append((_times(own, constant), moved))
        return tuple(found)

    def number(self, constant: Constant) -> Expression:
        """Return a constant."""
        return ((constant, ()),) if constant[1] else ()

    def scaled(self, one: Expression, constant: Constant) -> Expression:
        """Return a multiple."""
        return tuple((_times(own, constant), factors) for own, factors in one) if constant[1] else ()

    def added(self, *parts: Expression) -> Expression:
        """Return the sum."""
        known: dict[tuple[Factor, ...], list[Constant]] = {}
        for constant, factors in (addend for part in parts for addend in part):
            known.setdefault(factors, []).append(constant)
        if len(known) > _MOST_ADDENDS:
            raise TooLargeError
        found = [(total, factors) for factors, constants in known.items() for total in _totals(constants)]
        return tuple(sorted(found, key=lambda addend: (addend[1], addend[0])))

    def multiplied(self, one: Expression, other: Expression) -> Expression:
        """Return the product; a sum of several addends is one factor of it."""
        if not one or not other:
            return ()
        if len(one) > 1 and len(other) == 1 and not other[0][1]:
            return self.scaled(one, other[0][0])
        if len(other) > 1 and len(one) == 1 and not one[0][1]:
            return self.scaled(other, one[0][0])
        ((left, some),), ((right, more),) = self.alone(one), self.alone(other)
        return ((_times(left, right), self._powers((*some, *more))),)

    def alone(self, one: Expression) -> Expression:
        """Return the expression as one addend."""
        if len(one) == 1:
            return one
        term, pattern, constant = self.as_factor(one)
        return ((constant, ((term, pattern, ONE),)),)

    def _powers(self, factors: Iterable[Factor]) -> tuple[Factor, ...]:
        """Return a product of powers with one power of each factor, or one below and one above a fraction's bar."""
        known: dict[tuple[int, Pattern, bool], Fraction] = {}
        for term, pattern, power in factors:
            key = (term, pattern, power > 0 or self.is_positive(term))
            known[key] = known.get(key, Fraction(0)) + power
        return tuple(sorted((term, pattern, power) for (term, pattern, _), power in known.items() if power))

    def power(self, one: Expression, exponent: Fraction) -> Expression:
        """Return a power of the expression."""
        if not one:
            raise TooLargeError
        ((constant, factors),) = self.alone(one)
        for term, _, own in factors if exponent < 0 else ():
            if not self.is_positive(term) and own > 0:
                self.terms.require("not zero", term)
        whole = exponent.denominator == 1
        if whole or all(self.is_positive(term) for term, _, _ in factors):
            raised = _raised(constant, exponent)
            if raised is not None:
                return ((raised, self._powers((term, places, own * exponent) for term, places, own in factors)),)
        if constant[0] < 0:
            raise TooLargeError
        term, pattern, constant = self.as_factor(((constant, factors),))
        raised = _raised(constant, exponent)
        if raised is None:
            raise TooLargeError
        if self._least(term) == _ANY:
            self.terms.require("not negative", term)
        return ((raised, ((term, pattern, exponent),)),)

    def is_positive(self, term: int) -> bool:
        """Return whether every element of the term is greater than zero wherever the term has a value."""
        return self._least(term) == _POSITIVE

    def _least(self, term: int) -> int:
        """Return what is known of the elements of the term, wherever it has a value."""
        head, operands = self.terms.keys[term], self.terms.operands[term]
        if head[0] == CIRCLE or head[:2] == (FUNCTION, "exp"):
            return _POSITIVE
        if head[0] == TOTAL:
            return min(self._least_power(own, power) for own, (_, power) in zip(operands, head[1], strict=True))
        if head[0] != SUM_OF_PRODUCTS:
            return _ANY
        factors, known = iter(operands), []
        for (sign, _), powers in head[1]:
            own = [self._least_power(next(factors), power) for _, power in powers]
            known.append(_ANY if sign < 0 else min(own, default=_POSITIVE))
        return _ANY if min(known) == _ANY else max(known)

    def _least_power(self, term: int, power: Fraction) -> int:
        least = self._least(term)
        if least == _POSITIVE or (power.denominator > 1 and power < 0):
            return _POSITIVE
        return _NOT_NEGATIVE if _is_even(power) or power.denominator > 1 else least

    def function(self, name: str, one: Expression) -> Expression:
        """Return a function of every element."""
        if name == "exp" and len(one) <= _MOST_POWERS:
            powers = [self._applied("exp", (addend,)) for addend in one]
            return ((NONE, self._powers(factor for ((_, factors),) in powers for factor in factors)),)
        if name == "log" and len(one) == 1 and one[0][0] == NONE and all(self.is_positive(term) for term, _, _ in one[0][1]):
            return self.added(*(self._logarithm(*factor) for factor in one[0][1]))
        return self._applied(name, one)

    def _applied(self, name: str, one: Expression) -> Expression:
        term, pattern, constant = self.as_factor(one)
        inner = times(self.terms, term, constant)
        if name == "log" and not (constant[0] > 0 and self.is_positive(term)):
            self.terms.require("positive", inner)
        made = self.terms.term((FUNCTION, name), (inner,), self.terms.shape[term], self.terms.slot[term])
        return ((NONE, ((made, pattern, ONE),)),)

    def _logarithm(self, term: int, pattern: Pattern, power: Fraction) -> Expression:
        constant = ((-1 if power < 0 else 1), power**2)
        if self.terms.keys[term][:2] == (FUNCTION, "exp"):
            return self.scaled(self.of_term(self.terms.operands[term][0], pattern), constant)
        return self.scaled(self._applied("log", ((NONE, ((term, pattern, ONE),)),)), constant)

    def total(self, one: Expression, over: frozenset[int]) -> Expression:
        """Return the sum over indices."""
        return self.added(*(self._total(addend, over) for addend in one)) if over else one

    def _total(self, addend: Addend, over: frozenset[int]) -> Expression:
        constant, factors = addend
        inner = [factor for factor in factors if over.intersection(factor[1])]
        outer = tuple(factor for factor in factors if not over.intersection(factor[1]))
        found = over.intersection(index for _, pattern, _ in inner for index in pattern)
        for index in over - found:
            size, cut = self.sizes[index]
            if cut:
                raise TooLargeError
            constant = _times(constant, (1, Fraction(size * size)))
        if not inner:
            return ((constant, outer),)
        (term, pattern, power), *more = inner
        if not more and power == 1 and self.terms.keys[term][0] == SUM_OF_PRODUCTS:
            below = self.total(self.of_term(term, pattern), found)
            return self.multiplied(((constant, outer),), below)
        if not more and power == 1 and self.terms.keys[term][0] == TOTAL:
            inner, found = self._unfolded(term, pattern, found)
        made, places = self._summed(inner, found)
        return ((constant, self._powers((*outer, (made, places, ONE)))),)

    def _unfolded(self, term: int, pattern: Pattern, over: frozenset[int]) -> tuple[list[Factor], frozenset[int]]:
        """Return the factors of a sum that is summed again, and all indices that both go over."""
        fresh = max([*self.sizes, -1]) + 1
        inner, gone = [], set(over)
        for own, (places, power) in zip(self.terms.operands[term], self.terms.keys[term][1], strict=True):
            moved = []
            for dim, place in enumerate(places):
                index = -1 if place == -1 else pattern[place] if place >= 0 else fresh - 2 - place
                if place < -1:
                    self.sizes[index] = (self.terms.shape[own][dim], dim == self.terms.slot[own])
                    gone.add(index)
                moved.append(index)
            inner.append((own, tuple(moved), power))
        return inner, frozenset(gone)

    def _summed(self, factors: Sequence[Factor], over: frozenset[int]) -> tuple[int, Pattern]:
        """Return the sum of a product over indices as a term, and the indices of its dimensions.

        In the term, indices that are left are numbered as its dimensions, and those that are summed from -2 downwards.
        """
        best: tuple[tuple[tuple[Pattern, Fraction], ...], list[Factor], list[int]] | None = None
        for ordered in _orders(factors):
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
        shape, slot = self._extent(places)
        made = self.terms.term((TOTAL, head), tuple(term for term, _, _ in ordered), shape, slot)
        return made, tuple(places)

    def _extent(self, places: Sequence[int]) -> tuple[tuple[int, ...], int]:
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

    def as_term(self, one: Expression, places: Sequence[int]) -> tuple[int, Constant]:
        """Return the expression as a constant times a term whose dimensions are these indices; -1 is one of size 1."""
        if not one:
            raise TooLargeError
        first = one[0][0]
        rest = [(_times(constant, _inverse(first)), factors) for constant, factors in one]
        named = {-1: -1, **{index: dim for dim, index in enumerate(places) if index >= 0}}
        shape = tuple(1 if index < 0 else self.sizes[index][0] for index in places)
        cut = [dim for dim, index in enumerate(places) if index >= 0 and self.sizes[index][1]]
        if len(cut) > 1:
            raise TooLargeError
        slot = cut[0] if cut else -1
        head = tuple(
            (constant, tuple((tuple(named[index] for index in pattern), power) for _, pattern, power in factors))
            for constant, factors in rest
        )
        operands = tuple(term for _, factors in rest for term, _, _ in factors)
        alone = len(operands) == 1 and head == ((NONE, ((tuple(range(len(shape))), ONE),)),)
        if alone and (self.terms.shape[operands[0]], self.terms.slot[operands[0]]) == (shape, slot):
            return operands[0], first
        return self.terms.term((SUM_OF_PRODUCTS, head), operands, shape, slot), first


def _orders(factors: Sequence[Factor]) -> Iterable[list[Factor]]:
    """Return the factors in the order of their terms and powers; in all orders of those that are alike, if these are few."""
    groups: dict[tuple[int, Fraction], list[Factor]] = {}
    for factor in sorted(factors):
        groups.setdefault((factor[0], factor[2]), []).append(factor)
    count = 1
    for group in groups.values():
        for size in range(2, len(group) + 1):
            count *= size
    if count > _MOST_TIES:
        return [[factor for group in groups.values() for factor in group]]
    ordered = product(*(permutations(group) for _, group in sorted(groups.items())))
    return [[factor for group in each for factor in group] for each in ordered]


def _is_even(power: Fraction) -> bool:
    return power.denominator == 1 and power.numerator % 2 == 0


def _times(one: Constant, other: Constant) -> Constant:
    return one[0] * other[0], one[1] * other[1]


def _inverse(one: Constant) -> Constant:
    return one[0], 1 / one[1]


def root_of(square: Fraction) -> Fraction | None:
    """Return the root of a fraction where it is one."""
    above, below = isqrt(square.numerator), isqrt(square.denominator)
    return Fraction(above, below) if (above * above, below * below) == (square.numerator, square.denominator) else None


def _raised(constant: Constant, exponent: Fraction) -> Constant | None:
    """Return the power of a constant; None where it is not the root of a fraction."""
    sign, square = constant
    if exponent.denominator == 1:
        return sign ** abs(exponent.numerator), square**exponent.numerator
    root = root_of(square)
    if sign < 0 or root is None or exponent.denominator != 2:
        return NONE if constant == NONE else None
    return 1, root**exponent.numerator


def _totals(constants: Sequence[Constant]) -> list[Constant]:
    """Return the sum of constants, with one addend for each root that they are multiples of."""
    found: list[tuple[Fraction, Fraction]] = []
    for sign, square in constants:
        for place, (total, base) in enumerate(found):
            ratio = root_of(square / base)
            if ratio is not None:
                found[place] = (total + sign * ratio, base)
                break
        else:
            found.append((Fraction(sign), square))
    return [((-1 if total < 0 else 1), total**2 * base) for total, base in found if total]
