"""Arithmetic on constants, which are kept as a sign and a square."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tvlint.analyses.relations.terms.constant_factors import NONE, Constant
from tvlint.analyses.relations.terms.expressions import ONE
from tvlint.analyses.relations.terms.numbers import root_of


def product_of(one: Constant, other: Constant) -> Constant:
    """Return the product of two constants."""
    if other[1] is ONE or one[1] is ONE:
        return one[0] * other[0], one[1] if other[1] is ONE else other[1]
    return one[0] * other[0], one[1] * other[1]


def inverse_of(one: Constant) -> Constant:
    """Return one divided by a constant."""
    return one if one[1] is ONE else (one[0], 1 / one[1])


def power_of(constant: Constant, exponent: Fraction) -> Constant | None:
    """Return the power of a constant; None where it is not the root of a fraction."""
    sign, square = constant
    if exponent.denominator == 1:
        return sign ** abs(exponent.numerator), square**exponent.numerator
    root = root_of(square)
    if sign < 0 or root is None or exponent.denominator != 2:
        return NONE if constant == NONE else None
    return 1, root**exponent.numerator


def totals_of(constants: Sequence[Constant]) -> list[Constant]:
    """Return the sum of constants, with one addend for each root that they are multiples of."""
    if len(constants) == 1:
        return [*constants]
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
