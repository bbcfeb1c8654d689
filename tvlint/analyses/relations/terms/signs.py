"""Signs of terms: what is known of all elements of one wherever it has a value."""

from __future__ import annotations

from fractions import Fraction

from tvlint.analyses.relations.terms.constant_factors import Pattern
from tvlint.analyses.relations.terms.expressions import BAND, CIRCLE, FLAG, FUNCTION, SLOT, SUM_OF_PRODUCTS, TOTAL
from tvlint.analyses.relations.terms.terms import Terms

ANY, NOT_NEGATIVE, POSITIVE = range(3)


def is_positive(terms: Terms, term: int) -> bool:
    """Return whether every element of the term is greater than zero wherever the term has a value."""
    return least(terms, term) == POSITIVE


def least(terms: Terms, term: int) -> int:
    """Return what is known of the elements of the term, wherever it has a value."""
    known, waiting = terms.signs, [term]
    while waiting:
        last = waiting[-1]
        below = terms.operands[last] if terms.keys[last][0] in (TOTAL, SUM_OF_PRODUCTS) else ()
        open_ = [operand for operand in below if operand not in known]
        if not open_:
            known[last] = _least_of(terms, waiting.pop())
        waiting += open_
    return known[term]


def _least_of(terms: Terms, term: int) -> int:
    """Return what is known of the elements of the term, whose operands are known."""
    head, operands = terms.keys[term], terms.operands[term]
    if head in ((CIRCLE,), SLOT) or head[:2] == (FUNCTION, "exp"):
        return POSITIVE
    if head[0] == FLAG:
        return NOT_NEGATIVE
    if head[0] == TOTAL:
        each = [_least_power(terms, operand, power) for operand, (_, power) in zip(operands, head[1], strict=True)]
        open_ = [place for place, known in enumerate(each) if known != POSITIVE]
        is_set = len(open_) == 1 and _is_set_in_every_sum(terms, operands[open_[0]], head[1][open_[0]][0])
        return POSITIVE if is_set else min(each)
    if head[0] != SUM_OF_PRODUCTS:
        return ANY
    factors, known = iter(operands), []
    for (sign, _), powers in head[1]:
        all_least = [_least_power(terms, next(factors), power) for _, power in powers]
        known.append(ANY if sign < 0 else min(all_least, default=POSITIVE))
    return ANY if min(known) == ANY else max(known)


def _is_set_in_every_sum(terms: Terms, term: int, pattern: Pattern) -> bool:
    """Return whether a factor is a band of which every sum has an element: all columns of a row, or all rows of a column."""
    head = terms.keys[term]
    if head[0] != FLAG or head[2:3] != (BAND,) or pattern[0] == pattern[1]:
        return False
    (rows, columns), (row_is_summed, column_is_summed), least = terms.shape[term], (index < -1 for index in pattern), head[3]
    if head[1]:
        return column_is_summed or (row_is_summed and columns - rows < least)
    return column_is_summed and columns - rows >= least


def _least_power(terms: Terms, term: int, power: Fraction) -> int:
    known = terms.signs[term]
    if known == POSITIVE or (power.denominator > 1 and power < 0):
        return POSITIVE
    return NOT_NEGATIVE if _is_even(power) or power.denominator > 1 else known


def _is_even(power: Fraction) -> bool:
    return power.denominator == 1 and power.numerator % 2 == 0
