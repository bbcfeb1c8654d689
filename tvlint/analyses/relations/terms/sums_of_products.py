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

A view that joins dimensions stands outside of the expression, and one that splits a dimension at the factor that has it:
inside, every dimension has as many indices as the finest view of it has dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import prod
from typing import TypeAlias

from tvlint.analyses.relations.terms.constant_factors import NONE, Constant, Pattern, bare, rational, renumbered, times
from tvlint.analyses.relations.terms.constants import power_of, product_of
from tvlint.analyses.relations.terms.expressions import (
    FLAG,
    FUNCTION,
    MERGE,
    ONE,
    PAD,
    PLACE,
    SLICE,
    SLOT,
    SPLIT,
    SUM_OF_PRODUCTS,
    TOTAL,
    Addend,
    Deeper,
    Expression,
    Factor,
    TooLargeError,
    between,
    parts_of,
    split_runs,
)
from tvlint.analyses.relations.terms.loss_identities import CLASSES
from tvlint.analyses.relations.terms.numbers import root_of
from tvlint.analyses.relations.terms.signs import ANY, is_positive, least
from tvlint.analyses.relations.terms.sums import may_have_infinities, may_vanish
from tvlint.analyses.relations.terms.terms_at_indices import TermsAtIndices
from tvlint.ops.field import AT_ZERO
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_Ranges: TypeAlias = dict[tuple[int, int], tuple[int, Expression]]
"""By start and size: an index of that size, and a value that has it."""


def _with_one_index(indices: Pattern, runs: Mapping[Pattern, int]) -> Pattern:
    """Return indices with one for each run of them that stands among them in its order."""
    for run, index in runs.items():
        for start in range(len(indices) - len(run) + 1):
            if indices[start : start + len(run)] == run:
                indices = (*indices[:start], index, *indices[start + len(run) :])
                break
    return indices


_BY_ELEMENT = (Trait.ACTIVATION, Trait.COMPARISON, Trait.CONVERSION, Trait.MASKING)
"""Operators on elements whose attributes say nothing of where dimensions are."""

_MOST_POWERS = 4
_MOST_MULTIPLIED_OUT = 16
_MOST_MULTIPLIED = 20
_OF_ZERO = {name: rational(value) for name, value in AT_ZERO.items()}
"""What functions are of zero: a sign, and the square."""


def _renamed(one: Expression, names: Mapping[int, int]) -> Expression:
    """Return the expression with other indices."""
    renamed = (
        (constant, tuple(sorted((term, tuple(names[index] for index in pattern), power) for term, pattern, power in factors)))
        for constant, factors in one
    )
    return tuple(sorted(renamed, key=lambda addend: (addend[1], addend[0])))


@dataclass(frozen=True, slots=True)
class Products(TermsAtIndices):
    """Arithmetic on expressions over one table of terms."""

    def multiplied(self, one: Expression, other: Expression) -> Expression:
        """Return the product; a sum of several addends is one factor of it."""
        if not one or not other:
            return ()
        if len(one) > 1 and len(other) == 1 and not other[0][1]:
            return self.scaled(one, other[0][0])
        if len(other) > 1 and len(one) == 1 and not one[0][1]:
            return self.scaled(other, one[0][0])
        for joined, rest in ((one, other), (other, one)):
            if len(joined) > 1 and (self._is_joined(joined) or self._is_multiplied_out(joined, rest)):
                return self.added(*(self.multiplied((addend,), rest) for addend in joined))
        for flag, rest in ((one, other), (other, one)):
            if len(flag) == 1 and len(rest) > 1 and self._has_flags(rest, flag[0][1]):
                return self.scaled(rest, flag[0][0])
        ((left, some),), ((right, more),) = self.alone(one), self.alone(other)
        return ((product_of(left, right), self._powers((*some, *more))),)

    def _is_multiplied_out(self, one: Expression, other: Expression) -> bool:
        """Return whether the product of a sum is written addend by addend: it has few, and does not cancel out as a whole."""
        if not self.terms.multiplied_out or len(one) * len(other) > _MOST_MULTIPLIED_OUT:
            return False
        below = {term for _, factors in other for term, _, power in factors if power < 0}
        return not below or self.as_factor(one)[0] not in below

    def power(self, one: Expression, exponent: Fraction) -> Expression:
        """Return a power of the expression."""
        if not one:
            raise TooLargeError
        if exponent == 1:
            return one
        beside = self._range_by_range(one, exponent > 0, lambda value: self.power(value, exponent))
        if beside is not None:
            return beside
        if len(one) > 1 and exponent in (2, 3) and self._is_multiplied_out(one, one):
            square = self.multiplied(one, one)
            return square if exponent == 2 else self.multiplied(square, one)
        ((constant, factors),) = self.alone(one)
        for term, _, factor_power in factors if exponent < 0 else ():
            if factor_power > 0 and (not is_positive(self.terms, term) or may_vanish(self.terms, term)):
                self.terms.require("not zero", term)
        whole = exponent.denominator == 1
        if whole or all(is_positive(self.terms, term) for term, _, _ in factors):
            raised = power_of(constant, exponent)
            if raised is not None:
                return (
                    (raised, self._powers((term, places, factor_power * exponent) for term, places, factor_power in factors)),
                )
        if constant[0] < 0 and len(one) == 1:
            raise TooLargeError
        term, pattern, constant = self.as_factor(((constant, factors),))
        if constant[0] < 0:
            term, constant = self._negative(term), (1, constant[1])
        raised = power_of(constant, exponent)
        if raised is None:
            raise TooLargeError
        if least(self.terms, term) == ANY:
            self.terms.require("not negative", term)
        return ((raised, ((term, pattern, exponent),)),)

    def function(self, name: str, one: Expression) -> Expression:
        """Return a function of every element."""
        keeps_zero = name in _OF_ZERO and not _OF_ZERO[name][1]
        beside = self._range_by_range(one, keeps_zero, lambda value: self.function(name, value))
        if beside is not None:
            return beside
        if name == "exp" and len(one) <= _MOST_POWERS:
            powers = [self._power_of_e(addend) for addend in one]
            return ((NONE, self._powers(factor for ((_, factors),) in powers for factor in factors)),)
        if name == "log":
            one = self.alone(one) if self._denominators(one) else one
            constant, factors = one[0] if len(one) == 1 else ((0, ONE), ())
            if constant == NONE and all(is_positive(self.terms, term) for term, _, _ in factors):
                return self.added(*(self._logarithm(*factor) for factor in factors))
        return self._applied(name, one)

    def _power_of_e(self, addend: Addend) -> Expression:
        """Return the power of e of an addend; of a multiple of a logarithm that is a power of what is in the logarithm.

        That of a negative is one over that of the positive, where that is not zero.
        """
        (sign, square), factors = addend
        exponent = root_of(square)
        if exponent is not None and len(factors) == 1 and factors[0][2] == 1:
            term, pattern, _ = factors[0]
            inner = self.terms.operands[term]
            log = self.terms.keys[term] == (FUNCTION, "log")
            if log and (is_positive(self.terms, inner[0]) or (addend[0] == NONE and self.terms.keys[inner[0]][0] == FLAG)):
                return self.power(((NONE, ((inner[0], pattern, ONE),)),), sign * exponent)
        if sign > 0 or may_have_infinities(self.terms, factors):
            return self._applied("exp", (addend,))
        return self.power(self._applied("exp", (((1, square), factors),)), -ONE)

    def _of_zero(self, name: str) -> Expression:
        """Return what a function is of zero."""
        if name not in _OF_ZERO:
            raise TooLargeError
        return self.number(_OF_ZERO[name])

    def _logarithm(self, term: int, pattern: Pattern, power: Fraction) -> Expression:
        constant = ((-1 if power < 0 else 1), power**2)
        if self.terms.keys[term][:2] == (FUNCTION, "exp"):
            return self.scaled(self.of_term(self.terms.operands[term][0], pattern), constant)
        return self.scaled(self._applied("log", ((NONE, ((term, pattern, ONE),)),)), constant)

    def total(self, one: Expression, over: frozenset[int]) -> Expression:
        """Return the sum over indices."""
        if not over:
            return one
        with Deeper(self.terms):
            return self.added(*[self._total(addend, over) for addend in one])

    def _total(self, addend: Addend, over: frozenset[int]) -> Expression:
        constant, factors = addend
        for place, (term, pattern, power) in enumerate(factors):
            head = self.terms.keys[term]
            if head == PLACE and pattern[-1] in over and pattern.count(pattern[-1]) == 1:
                at_place = self._total_at_place(constant, factors, place, over)
                if at_place is not None:
                    return at_place
            if head[0] != PAD or power != ONE or pattern.count(pattern[head[1]]) != 1:
                continue
            rest = (constant, (*factors[:place], *factors[place + 1 :]))
            if pattern[head[1]] in over:
                return self._total_among_zeros(rest, term, pattern, over)
            alone = not any(pattern[head[1]] in other for _, other, _ in rest[1])
            whole = len(parts_of(self.terms, self.terms.operands[term][0])[head[1]]) == 1
            if alone and whole and over.intersection(pattern) and self.terms.shape[self.terms.operands[term][0]][head[1]] > 1:
                return self._total_of_padded(rest, term, pattern, over)
        inner = [factor for factor in factors if over.intersection(factor[1])]
        outer = tuple(factor for factor in factors if not over.intersection(factor[1]))
        found = over.intersection(index for _, pattern, _ in inner for index in pattern)
        for index in over - found:
            size, cut = self.sizes[index]
            if cut:
                inner.append((self.terms.term(SLOT, (), (size,), 0), (index,), ONE))
                found |= {index}
            else:
                constant = product_of(constant, (1, Fraction(size * size)))
        if not inner:
            return ((constant, outer),)
        (term, pattern, power), *more = inner
        if not more and power == 1 and self.terms.keys[term][0] == SUM_OF_PRODUCTS:
            below = self.total(self.of_term(term, pattern), found)
            return self.multiplied(((constant, outer),), below)
        if not more and power == 1 and self.terms.keys[term][0] == TOTAL:
            inner, found = self._unfolded(term, [(index,) for index in pattern], found)
        elif self.terms.multiplied_out:
            inner, found = self._with_sums_inside(inner, found)
        joined = self._with_summed_parts_joined(inner, found)
        if joined is not None:
            return self.total(((constant, (*outer, *joined[0])),), joined[1])
        made, places = self._summed(inner, found)
        return ((constant, self._powers((*outer, (made, places, ONE)))),)

    def _with_summed_parts_joined(
        self, factors: Sequence[Factor], over: frozenset[int]
    ) -> tuple[tuple[Factor, ...], frozenset[int]] | None:
        """Return the factors of a sum, and what it is over, with a dimension in the place of all its parts, over which it is
        and which every factor has alike; None where there is no such dimension.
        """
        for term, pattern, _ in factors:
            for dims in split_runs(self.terms, term) if len(over.intersection(pattern)) > 1 else ():
                run = tuple(pattern[dim] for dim in dims)
                if not over.issuperset(run):
                    continue
                index = self._new_index(prod(self.sizes[part][0] for part in run))
                self.sizes[index] = (self.sizes[index][0], self.sizes[run[0]][1])
                try:
                    made = self._powers(self._with_run(*factor, {run: index}) for factor in factors)
                except TooLargeError:
                    continue
                return made, over.difference(run) | {index}
        return None

    def _with_sums_inside(self, factors: Sequence[Factor], over: frozenset[int]) -> tuple[list[Factor], frozenset[int]]:
        """Return a sum of products of sums as one sum over all their indices, where it has few factors: a product of matrices
        is the same whichever of them are multiplied first.
        """
        inner, found = list(factors), over
        while (place := next((i for i, (term, _, power) in enumerate(inner) if self._is_sum(term, power)), -1)) >= 0:
            term, pattern, _ = inner[place]
            if len(inner) - 1 + len(self.terms.operands[term]) > _MOST_MULTIPLIED:
                break
            more, found = self._unfolded(term, [(index,) for index in pattern], found)
            inner[place : place + 1] = more
        return inner, found

    def _total_at_place(
        self, constant: Constant, factors: tuple[Factor, ...], place: int, over: frozenset[int]
    ) -> Expression | None:
        """Return the sum along an index of what counts at one place alone: addend by addend, and the rest of the product where
        nothing else has the index; None where there is only a product.
        """
        index, rest = factors[place][1][-1], (*factors[:place], *factors[place + 1 :])
        if factors[place][0] in self.terms.within and not any(index in pattern for _, pattern, _ in rest):
            self.terms.assumptions.add(CLASSES)
            return self.total(((constant, rest),), over - {index})
        for number, (term, pattern, power) in enumerate(factors):
            if power == ONE and index in pattern and self.terms.keys[term][0] == SUM_OF_PRODUCTS:
                others: Expression = ((constant, (*factors[:number], *factors[number + 1 :])),)
                parts = [self.multiplied(others, (addend,)) for addend in self.of_term(term, pattern)]
                return self.added(*(self.total(part, over) for part in parts)) if len(parts) > 1 else None
        return None

    def _total_among_zeros(self, rest: Addend, term: int, pattern: Pattern, over: frozenset[int]) -> Expression:
        """Return the sum of what a value among zeros is multiplied with: that over the indices at which the value stands."""
        _, dim, start, _ = self.terms.keys[term]
        (inner,), index = self.terms.operands[term], pattern[dim]
        part = self._new_index(self.terms.shape[inner][dim])
        self._split_as(part, parts_of(self.terms, inner)[dim])
        cut = self.sliced((rest,), index, start, start + self.terms.shape[inner][dim], part)
        expression = self.of_term(inner, [*pattern[:dim], part, *pattern[dim + 1 :]])
        return self.total(self.multiplied(cut, expression), (over - {index}).union(self.expanded(part)))

    def _total_of_padded(self, rest: Addend, term: int, pattern: Pattern, over: frozenset[int]) -> Expression:
        """Return the sum of what a value among zeros is multiplied with, along other dimensions: the sum among zeros."""
        _, dim, start, size = self.terms.keys[term]
        (inner,), index, part = self.terms.operands[term], pattern[dim], max([*self.sizes, -1]) + 1
        expression = self.of_term(inner, [*pattern[:dim], part, *pattern[dim + 1 :]])
        return self.padded(self.total(self.multiplied((rest,), expression), over), part, start, size, index)

    def sliced(self, one: Expression, index: int, start: int, stop: int, part: int) -> Expression:
        """Return the expression at some of the values of an index; the others have the index `part`.

        It asks of some elements what the expression asks of all, and nothing else.
        """
        asked = self.terms.restricted.copy()
        self.sizes[part] = (stop - start, False)
        found: list[Expression] = []
        for constant, factors in one:
            expression: Expression = ((constant, self._powers(factor for factor in factors if index not in factor[1])),)
            for term, pattern, power in factors:
                if index in pattern:
                    with Deeper(self.terms):
                        made = self._slice(term, pattern, index, start, stop, part)
                    expression = self.multiplied(expression, self._raised(made, power))
            found.append(expression)
        placed = self._placed_again(self.added(*found), part)
        self.terms.restricted.intersection_update(asked)
        return placed

    def _placed_again(self, one: Expression, part: int) -> Expression:
        """Return the expression with the indices that stand for an index, if it was split when some factors had it already."""
        if part not in self.parts or not any(part in pattern for _, factors in one for _, pattern, _ in factors):
            return one
        return tuple(
            (
                constant,
                tuple(sorted(self._factor(term, [self.expanded(index) for index in at], power) for term, at, power in factors)),
            )
            for constant, factors in one
        )

    def _raised(self, one: Expression, power: Fraction) -> Expression:
        """Return a power of what takes the place of a factor."""
        return one if power == ONE or not one else self.power(one, power)

    def _slice(self, term: int, pattern: Pattern, index: int, start: int, stop: int, part: int) -> Expression:
        """Return some of the values of one index of a factor, found once for all indices of its dimensions."""
        if pattern.count(index) > 1 or self.sizes[index][1]:
            raise TooLargeError
        known, key = self.terms.slices, (term, pattern.index(index), start, stop)
        moved = [part if place == index else place for place in pattern]
        if -1 in pattern or len({*pattern}) < len(pattern) or not self.parts.keys().isdisjoint(moved):
            return self._slice_anew(term, pattern, index, start, stop, part)
        if key not in known:
            made = self._slice_anew(term, pattern, index, start, stop, part)
            if part in self.parts or not {i for _, factors in made for _, at, _ in factors for i in at} <= {-1, *moved}:
                return made
            known[key] = _renamed(made, {-1: -1, **{place: dim for dim, place in enumerate(moved)}})
        return _renamed(known[key], {-1: -1, **dict(enumerate(moved))})

    def _slice_anew(self, term: int, pattern: Pattern, index: int, start: int, stop: int, part: int) -> Expression:
        """Return some of the values of one index of a factor."""
        terms = self.terms
        head, operands, dim = terms.keys[term], terms.operands[term], pattern.index(index)
        moved = tuple(part if place == index else place for place in pattern)
        if head[0] == TOTAL:
            inner, gone = self._unfolded(term, [(place,) for place in pattern], frozenset())
            return self.total(self.sliced(((NONE, tuple(inner)),), index, start, stop, part), gone)
        if head[0] == FUNCTION:
            made = self.sliced(self.of_places(operands[0], [(place,) for place in pattern]), index, start, stop, part)
            return self._applied(head[1], made) if made else self._of_zero(head[1])
        if head[0] == PAD and head[1] == dim:
            low, high = head[2], head[2] + terms.shape[operands[0]][dim]
            if stop <= low or high <= start:
                return ()
            if (start, stop) != (low, high):
                return self._slice_among_zeros(operands[0], pattern, dim, (start - low, stop - low), part)
            self._split_as(part, parts_of(terms, operands[0])[dim])
            return self.of_term(operands[0], moved)
        if head == PLACE and dim < len(pattern) - 1:
            ((_, factors),) = self.alone(self._slice(operands[0], pattern[:-1], index, start, stop, part))
            return ((NONE, (self._place_of(factors[0], pattern[-1:], term in terms.within),)),)
        if head[0] == SPLIT:
            outer = self._slice_of_outermost(term, pattern, index, (start, stop), part)
            if outer is not None:
                return outer
        if head[0] == MERGE:
            joined = self._slice_of_joined(term, pattern, dim, (start, stop), part)
            if joined is not None:
                return joined
        if head[0] == SUM_OF_PRODUCTS:
            return self._slice_of_sum(term, pattern, index, (start, stop), part)
        if head[0] == SLICE and head[1] == dim:
            (term,), start, stop = operands, start + head[2], stop + head[2]
        shape = (*terms.shape[term][:dim], stop - start, *terms.shape[term][dim + 1 :])
        if stop - start == terms.shape[term][dim]:
            return self.of_term(term, moved)
        places = tuple(-1 if place == part else place for place in moved) if stop - start == 1 else moved
        return ((NONE, ((terms.term((SLICE, dim, start, stop), (term,), shape, terms.slot[term]), places, ONE),)),)

    def _slice_of_sum(self, term: int, pattern: Pattern, index: int, ends: tuple[int, int], part: int) -> Expression:
        """Return some of the values of an index of a sum as one factor."""
        made = self.sliced(self.placed(term, [(place,) for place in pattern]), index, *ends, part)
        if not made:
            return ()
        found, places, constant = self.as_factor(made)
        return ((constant, ((found, places, ONE),)),)

    def _slice_of_outermost(
        self, term: int, pattern: Pattern, index: int, ends: tuple[int, int], part: int
    ) -> Expression | None:
        """Return some of the values of the outermost part of a dimension that is split: a slice of the dimension, split again.

        None where the index is no such part.
        """
        terms, waiting = self.terms, iter(pattern)
        groups = [[next(waiting) for _ in range(count)] for count in terms.keys[term][1]]
        dim = next((place for place, group in enumerate(groups) if len(group) > 1 and group[0] == index), -1)
        if dim < 0:
            return None
        (base,), inner = terms.operands[term], groups[dim][1:]
        start, stop = (end * prod(self.sizes[each][0] for each in inner) for end in ends)
        if terms.keys[base][0] == SLICE and terms.keys[base][1] == dim:
            start, stop = start + terms.keys[base][2], stop + terms.keys[base][2]
            (base,) = terms.operands[base]
        if dim == terms.slot[base]:
            return None
        shape = (*terms.shape[base][:dim], stop - start, *terms.shape[base][dim + 1 :])
        made = terms.term((SLICE, dim, start, stop), (base,), shape, terms.slot[base])
        groups[dim] = inner if ends[1] - ends[0] == 1 else [part, *inner]
        return ((NONE, (self._factor(made, [tuple(group) for group in groups], ONE),)),)

    def _slice_of_joined(self, term: int, pattern: Pattern, dim: int, ends: tuple[int, int], part: int) -> Expression | None:
        """Return some of the values of an index that joins dimensions, as those of the outermost one; None for others."""
        terms, parts = self.terms, parts_of(self.terms, term)
        inner = parts[dim][1:]
        step = prod(inner)
        if not inner or any(end % step for end in ends) or any(len(sizes) > 1 for sizes in (*parts[:dim], *parts[dim + 1 :])):
            return None
        (base,), (start, stop) = terms.operands[term], (end // step for end in ends)
        outer, kept = self._new_index(parts[dim][0]), inner if stop - start == 1 else (stop - start, *inner)
        self._split_as(part, kept)
        within = self.expanded(part)[-len(inner) :]
        places = [(place,) for place in (*pattern[:dim], outer, *within, *pattern[dim + 1 :])]
        if stop - start > 1:
            return self.sliced(self.placed(base, places), outer, start, stop, self.expanded(part)[0])
        one = self._new_index(1)
        made = self.sliced(self.placed(base, places), outer, start, stop, one)
        return tuple(
            (constant, tuple((found, tuple(-1 if i == one else i for i in at), power) for found, at, power in factors))
            for constant, factors in made
        )

    def _slice_among_zeros(self, inner: int, pattern: Pattern, dim: int, ends: tuple[int, int], part: int) -> Expression:
        """Return some of the values of a value among zeros; `ends` are counted from its first that is none of them."""
        size, (start, stop) = self.terms.shape[inner][dim], ends
        first, last = max(start, 0), min(stop, size)
        fresh = max([*self.sizes, part, -1]) + 1
        self.sizes[fresh] = (size, False)
        value = self.of_term(inner, [*pattern[:dim], fresh, *pattern[dim + 1 :]])
        if (first, last) != (0, size):
            value, fresh = self.sliced(value, fresh, first, last, fresh + 1), fresh + 1
        return self.padded(value, fresh, first - start, stop - start, part) if value else ()

    def _pad(self, term: int, pattern: Pattern, part: int, start: int, size: int, index: int) -> tuple[int, Pattern]:
        """Return a factor among zeros."""
        terms, dim = self.terms, pattern.index(part)
        if size == terms.shape[term][dim]:
            return term, tuple(index if place == part else place for place in pattern)
        if terms.keys[term][0] == PAD and terms.keys[term][1] == dim:
            (term,), start = terms.operands[term], start + terms.keys[term][2]
        shape = (*terms.shape[term][:dim], size, *terms.shape[term][dim + 1 :])
        made = terms.term((PAD, dim, start, size), (term,), shape, terms.slot[term])
        return made, tuple(index if place == part else place for place in pattern)

    def padded(self, one: Expression, part: int, start: int, size: int, index: int) -> Expression:
        """Return the expression among zeros: its values of index `part` are those of `index` from `start` on."""
        self.sizes[index] = (size, False)
        one = self._with_split(one, part)
        known = {index for _, factors in one for _, pattern, _ in factors for index in pattern}
        if known.isdisjoint(self.expanded(part)):
            if part not in self.sizes:
                raise TooLargeError
            alone, _ = self.as_term(self.number(NONE), [-1 if self.sizes[part] == (1, False) else part])
            here = self.terms.term((PAD, 0, start, size), (alone,), (size,), -1)
            return self.multiplied(one, ((NONE, ((here, (index,), ONE),)),))
        atoms = frozenset(self.expanded(part))
        outer = tuple(factor for factor in one[0][1] if atoms.isdisjoint(factor[1])) if len(one) == 1 else ()
        inner = tuple((constant, tuple(factor for factor in factors if factor not in outer)) for constant, factors in one)
        if len(atoms) > 1:
            others = dict.fromkeys(i for _, factors in inner for _, at, _ in factors for i in at if i >= 0 and i not in atoms)
            pattern = (*others, part)
            term, constant = self.laid_out(inner, pattern)
        else:
            term, pattern, constant = self.as_factor(inner)
        if pattern.count(part) != 1:
            raise TooLargeError
        return ((constant, self._powers((*outer, (*self._pad(term, pattern, part, start, size, index), ONE)))),)

    def _with_split(self, one: Expression, part: int) -> Expression:
        """Return a value of which an index joins dimensions as what it joins, which has one layout."""
        factors = [factor for _, each in one for factor in each if part in factor[1]]
        if len(one) != 1 or len(factors) != 1 or self.terms.keys[factors[0][0]][0] != MERGE or part in self.parts:
            return one
        ((term, pattern, power),) = factors
        dim, parts = pattern.index(part), parts_of(self.terms, term)
        if pattern.count(part) > 1 or any(len(sizes) > 1 for sizes in (*parts[:dim], *parts[dim + 1 :])):
            return one
        self._split_as(part, parts[dim])
        ((constant, rest),) = one
        others = ((constant, tuple(factor for factor in rest if factor != factors[0])),)
        return self.multiplied(others, self._raised(self.of_term(term, pattern), power))

    def side_by_side(self, one: Expression) -> Expression:
        """Return values side by side with one addend for each range that values stand at, and all else among the zeros.

        The expression is as it was where values stand along several indices, or ranges overlap in part.
        """
        found = self._ranges(one)
        return one if found is None else self._beside_each_other(*found)

    def ranges(self, one: Expression) -> tuple[int, list[tuple[int, int]]] | None:
        """Return the index along which values stand side by side, and the start and the length of each; None where none do."""
        found = self._ranges(one)
        return None if found is None else (found[0], [*found[1]])

    def _ranges(self, one: Expression, alone: bool = False) -> tuple[int, _Ranges] | None:
        """Return the index along which values stand side by side, and by range the index of the value there and the value.

        What stands at all indices is cut into these ranges, too. None where values stand along several indices, or ranges
        overlap in part.
        """
        along = [self._zeros_along(factors, alone) for _, factors in one]
        index = next(iter(frozenset.intersection(*filter(None, along))), -1) if any(along) else -1
        if index < 0:
            return None
        parts: dict[tuple[int, int], int] = {}
        ranges: dict[tuple[int, int], list[Expression]] = {}
        for (constant, factors), here in zip(one, along, strict=True):
            if not here:
                continue
            place = next(i for i, factor in enumerate(factors) if self._stands_along(factor, alone) == index)
            (term, pattern, _), rest = factors[place], (*factors[:place], *factors[place + 1 :])
            _, dim, start, _ = self.terms.keys[term]
            (inner,) = self.terms.operands[term]
            size = self.terms.shape[inner][dim]
            if (start, size) not in parts:
                parts[start, size] = self._new_index(size)
            part = parts[start, size]
            self._split_as(part, parts_of(self.terms, inner)[dim])
            cut = self.sliced(((constant, rest),), index, start, start + size, part)
            value = self.of_term(inner, [*pattern[:dim], part, *pattern[dim + 1 :]])
            ranges.setdefault((start, size), []).append(self.multiplied(cut, value))
        everywhere = tuple(addend for addend, here in zip(one, along, strict=True) if not here)
        if any(start + size > after for (start, size), (after, _) in pairwise(sorted(ranges))):
            return None
        for start, size in [*ranges, *between(sorted(ranges), self.sizes[index][0])] if everywhere else ():
            if (start, size) not in parts:
                parts[start, size] = self._new_index(size)
            part = parts[start, size]
            ranges.setdefault((start, size), []).append(self.sliced(everywhere, index, start, start + size, part))
        return index, {each: (parts[each], self.added(*ranges[each])) for each in sorted(ranges)}

    def _beside_each_other(self, index: int, ranges: _Ranges) -> Expression:
        """Return values at their ranges of an index."""
        size = self.sizes[index][0]
        return self.added(
            *(self.padded(value, part, start, size, index) for (start, _), (part, value) in ranges.items() if value)
        )

    def _range_by_range(
        self, one: Expression, keeps_zero: bool, function: Callable[[Expression], Expression]
    ) -> Expression | None:
        """Return a function of values side by side: that of each of them, where it keeps the zeros between them, or there are
        none. None where it does not.
        """
        if not any(self.terms.keys[term][0] == PAD for _, factors in one for term, _, _ in factors):
            return None
        try:
            found = self._ranges(one) or (None if keeps_zero else self._ranges(one, alone=True))
            if found is None:
                return None
            index, ranges = found
            taken = sum(size for (_, size), (_, value) in ranges.items() if value)
            if not keeps_zero and taken != self.sizes[index][0]:
                return None
            made = {each: (part, function(value) if value else ()) for each, (part, value) in ranges.items()}
            return self._beside_each_other(index, made)
        except TooLargeError:
            return None

    def laid_out(self, one: Expression, places: Sequence[int]) -> tuple[int, Constant]:
        """Return the expression as a constant times a term whose dimensions are these indices, joined where they are split."""
        found, constant = self.as_term(one, [atom for index in places for atom in self.expanded(index)])
        made, factor = bare(self.terms, self.merged(found, tuple(len(self.expanded(index)) for index in places)))
        return made, product_of(constant, factor)

    def merged(self, term: int, counts: Sequence[int]) -> int:
        """Return the term with so many of its dimensions in a row joined into each one."""
        terms, dims = self.terms, iter(range(sum(counts)))
        if all(count == 1 for count in counts):
            return term
        if terms.keys[term] == (SPLIT, tuple(counts)):
            return terms.operands[term][0]
        groups = [[next(dims) for _ in range(count)] for count in counts]
        slots = [place for place, group in enumerate(groups) if terms.slot[term] in group]
        if slots and groups[slots[0]][0] != terms.slot[term]:
            raise TooLargeError
        shape, slot = tuple(prod(terms.shape[term][dim] for dim in group) for group in groups), slots[0] if slots else -1
        if (term, tuple(counts)) not in terms.apart:
            plain = type(self)(terms)._joined_again(term, groups)
            if plain is not None and (terms.shape[plain], terms.slot[plain]) == (shape, slot):
                return plain
            terms.apart.add((term, tuple(counts)))
        return terms.term((MERGE, tuple(counts)), (term,), shape, slot)

    def _joined_again(self, term: int, groups: Sequence[Sequence[int]]) -> int | None:
        """Return the term with dimensions joined that all of its factors split off one dimension; None where some do not."""
        terms, count = self.terms, sum(map(len, groups))
        self.sizes.update((dim, (size, dim == terms.slot[term])) for dim, size in enumerate(terms.shape[term]))
        runs = {tuple(group): count + place for place, group in enumerate(groups) if len(group) > 1}
        for value, index in runs.items():
            self.sizes[index] = (prod(self.sizes[dim][0] for dim in value), self.sizes[value[0]][1])
        try:
            found = self._with_runs(self.placed(term, [(dim,) for dim in range(count)]), runs)
            places = [runs[tuple(group)] if len(group) > 1 else group[0] if group else -1 for group in groups]
            made, constant = self.as_term(found, places)
        except TooLargeError:
            return None
        return times(terms, made, constant)

    def _with_runs(self, one: Expression, runs: Mapping[Pattern, int]) -> Expression:
        """Return the expression with one index for each run of indices. Raises TooLargeError where they stand apart."""
        among = [next((i for i, factor in enumerate(each) if self._is_at_one_index(factor, runs)), -1) for _, each in one]
        if all(place < 0 for place in among):
            return tuple(
                (constant, self._powers(self._with_run(*factor, runs) for factor in factors)) for constant, factors in one
            )
        found: list[Expression] = []
        for (constant, factors), place in zip(one, among, strict=True):
            if place < 0:
                found.append(self._with_runs(((constant, factors),), runs))
            else:
                rest = (constant, (*factors[:place], *factors[place + 1 :]))
                found.append(self._at_outermost(rest, factors[place], runs))
        return self.side_by_side(self.added(*found))

    def _is_at_one_index(self, factor: Factor, runs: Mapping[Pattern, int]) -> bool:
        """Return whether a factor is one at one index of the outermost dimension of some run, and zero elsewhere."""
        term, pattern, power = factor
        head, operands = self.terms.keys[term], self.terms.operands[term]
        alone = head[0] == PAD and power == ONE and self.terms.keys[operands[0]][:2] == ("one", (1,))
        return alone and any(run[0] == pattern[0] for run in runs)

    def _at_outermost(self, rest: Addend, factor: Factor, runs: Mapping[Pattern, int]) -> Expression:
        """Return a value at one index of the outermost dimension of a run: it is among zeros along the joined one."""
        term, (outermost,), _ = factor
        run = next(run for run in runs if run[0] == outermost)
        if any(outermost in pattern for _, pattern, _ in rest[1]):
            raise TooLargeError
        inner, start, joined = run[1:], self.terms.keys[term][2], runs[run]
        others = {each: index for each, index in runs.items() if each != run}
        part, size = inner[0], prod(self.sizes[index][0] for index in inner)
        if len(inner) > 1:
            part = others[inner] = self._new_index(size)
        return self.padded(self._with_runs((rest,), others), part, start * size, self.sizes[joined][0], joined)

    def _with_run(self, term: int, pattern: Pattern, power: Fraction, runs: Mapping[Pattern, int]) -> Factor:
        """Return a factor with one index for each run of indices. Raises TooLargeError where its dimensions stand apart."""
        places = {index: (at, place, len(run)) for at, run in enumerate(runs) for place, index in enumerate(run)}
        if places.keys().isdisjoint(pattern):
            return term, pattern, power
        key = term, (tuple(map(places.get, pattern)), tuple(tuple(self.sizes[index] for index in run) for run in runs))
        if key in self.terms.apart:
            raise TooLargeError
        names = [*pattern, *runs.values()]
        each_once = len({*names}) == len(names)
        if key in self.terms.joined and each_once:
            found, dims = self.terms.joined[key]
            return found, tuple(names[dim] for dim in dims), power
        try:
            found, made, raised = self._joined_factor(term, pattern, power, runs)
        except TooLargeError:
            self.terms.apart.add(key)
            raise
        if each_once and {*made} <= {*names} and raised == power:
            self.terms.joined[key] = found, tuple(map(names.index, made))
        return found, made, raised

    def _of_elements(self, term: int, pattern: Pattern, runs: Mapping[Pattern, int]) -> tuple[int, Pattern]:
        """Return an operator on elements, applied to operands that have one index for each run."""
        head, operands = self.terms.keys[term], self.terms.operands[term]
        *places, result = head[3][:-3]
        if len(places) != len(operands) or -1 in result or not {index for place in places for index in place} <= {*result, -1}:
            raise TooLargeError
        at = {-1: (), **{index: (outer,) for index, outer in zip(result, pattern, strict=True)}}
        values, found = [], list[Pattern]()
        for operand, place in zip(operands, places, strict=True):
            value, indices, constant = self.as_factor(
                self._with_runs(self.of_places(operand, [at[index] for index in place]), runs)
            )
            values.append(times(self.terms, value, constant))
            found.append(indices)
        order = tuple(dict.fromkeys(index for indices in found for index in indices if index >= 0))
        numbered = (*renumbered(*found, order), (), (), ())
        return self.terms.term((*head[:3], numbered, ()), tuple(values), *self.extent(order)), order

    def _joined_factor(self, term: int, pattern: Pattern, power: Fraction, runs: Mapping[Pattern, int]) -> Factor:
        """Return a factor that has indices of runs with one index for each of these."""
        apart = {index for run in runs for index in run}
        head, operands, waiting = self.terms.keys[term], self.terms.operands[term], iter(pattern)
        if head[0] == SPLIT:
            groups = [tuple(next(waiting) for _ in range(count)) for count in head[1]]
            places = [_with_one_index(each, runs) for each in groups]
            if apart.isdisjoint(index for place in places for index in place):
                return self._factor(operands[0], places, power)
        if head[0] == TOTAL:
            inner, gone = self._unfolded(term, [(index,) for index in pattern], frozenset())
            return (*self._summed([self._with_run(*each, runs) for each in inner], gone), power)
        if head == PLACE and pattern[-1] not in apart:
            of = self._with_run(*self._factor(operands[0], [(index,) for index in pattern[:-1]], ONE), runs)
            return (*self._place_of(of, pattern[-1:], term in self.terms.within)[:2], power)
        if head[0] == FUNCTION:
            made = self._with_runs(self.of_places(operands[0], [(index,) for index in pattern]), runs)
            ((_, ((found, places_of, _),)),) = self._applied(head[1], made)
            return found, places_of, power
        if (
            len(head) == 5
            and head[3][-3:] == ((), (), ())
            and head[4] == ()
            and has_trait(str(head[0]).removesuffix(" gradient"), *_BY_ELEMENT)
        ):
            return (*self._of_elements(term, pattern, runs), power)
        if head[0] == SUM_OF_PRODUCTS:
            found, places_of, constant = self.as_factor(
                self._with_runs(self.placed(term, [(index,) for index in pattern]), runs)
            )
            if constant == NONE:
                return found, places_of, power
        raise TooLargeError
