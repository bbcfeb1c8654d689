"""Whole numbers modulo a prime: a field in which what operators compute is compared exactly."""

from __future__ import annotations

from fractions import Fraction
from hashlib import blake2b
from typing import Any

import numpy as np

from tvlint.ops.field import Array


class Residues:
    """Python integers modulo a prime.

    Sums, products, quotients and whole powers are exact. Every other function is one arbitrary function of its arguments, the
    same each time: what holds here holds whatever that function is, and a difference shows a difference of polynomials.
    """

    def __init__(self, prime: int = (1 << 61) - 1) -> None:
        self.prime = prime

    def number(self, value: int | float) -> Any:
        exact = Fraction(str(value)) if isinstance(value, float) else Fraction(value)
        return exact.numerator * pow(exact.denominator, -1, self.prime) % self.prime

    def reduced(self, array: Array) -> Array:
        """The least non-negative residues."""
        return self._each(lambda value: value % self.prime, array)

    def function(self, name: str, operand: Array) -> Array:
        return self._each(lambda value: self._arbitrary(name, value), operand)

    def divide(self, left: Array, right: Array) -> Array:
        return self._each(lambda a, b: a * pow(int(b) % self.prime, -1, self.prime) % self.prime, left, right)

    def power(self, left: Array, right: Array) -> Array:
        def one(a: Any, b: Any) -> Any:
            return pow(a, b, self.prime) if 0 <= b < 1024 else self._arbitrary("power", a, b)

        return self._each(one, left, right)

    def less(self, left: Array, right: Array) -> Array:
        return self._each(lambda a, b: bool(self._arbitrary("less", a, b) % 2), left, right)

    def equal(self, left: Array, right: Any) -> Array:
        return np.asarray(left == right)

    def where(self, mask: Array, left: Array, right: Array) -> Array:
        return self._each(lambda m, a, b: a if m else b, mask, left, right)

    def _arbitrary(self, *arguments: Any) -> int:
        parts = [arguments[0], *(str(int(value) % self.prime) for value in arguments[1:])]
        return int.from_bytes(blake2b(" ".join(parts).encode(), digest_size=16).digest(), "big") % self.prime

    def _each(self, function: Any, *arrays: Array) -> Array:
        return np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), dtype=object)
