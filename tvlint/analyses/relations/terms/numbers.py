"""The numbers that constants of a plan stand for, exactly.

A plan holds floating-point numbers in the place of numbers. The one that is nearest to a small fraction stands for it; every
other number nearby is another constant. A root of a small fraction is recognised by its square, and is what the usual ways to
compute it give, to the last bit.
"""

from __future__ import annotations

from fractions import Fraction
from math import isfinite, isqrt, sqrt
from typing import Any

_SHORT = 10**9
_SMALL = 2**20


def number_of(value: Any) -> Fraction | None:
    """Return the number that a constant stands for; None for what is no finite number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    if not isinstance(value, float) or not isfinite(value):
        return None
    exact = Fraction(str(value))
    if max(abs(exact.numerator), exact.denominator) <= _SHORT:
        return exact
    near = exact.limit_denominator(_SMALL)
    return near if float(near) == value else exact


def square_of(value: Any) -> Fraction | None:
    """Return the square of the number that a constant stands for; None for what is no finite number."""
    number = number_of(value)
    if number is None or max(abs(number.numerator), number.denominator) <= _SHORT:
        return None if number is None else number * number
    near = (number * number).limit_denominator(_SMALL)
    is_root = 0 < near < _SHORT and not _is_square(near) and abs(value) in _roots(near)
    return near if is_root else number * number


def _is_square(number: Fraction) -> bool:
    return all(isqrt(part) ** 2 == part for part in (number.numerator, number.denominator))


def _roots(square: Fraction) -> set[float]:
    """Return what the usual ways to compute the root of a fraction give."""
    number, inverse = float(square), float(1 / square)
    return {sqrt(number), 1 / sqrt(inverse), sqrt(inverse) / inverse, number**0.5, inverse**-0.5}


def root_of(square: Fraction) -> Fraction | None:
    """Return the root of a fraction where it is one."""
    above, below = isqrt(square.numerator), isqrt(square.denominator)
    return Fraction(above, below) if (above * above, below * below) == (square.numerator, square.denominator) else None
