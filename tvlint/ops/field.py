"""The numbers that an operator's semantics runs on: floats here; integers modulo a prime and solver terms elsewhere alike.

A semantic function combines NumPy arrays of any element type with `+`, `-`, `*` and asks its field for the rest, so that one
statement of an operator serves as numbers, as a polynomial identity test and as a formula.
"""

from __future__ import annotations

from fractions import Fraction
from math import erf, pi, sqrt
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]
else:
    Array: TypeAlias = Any


AT_ZERO = {"exp": Fraction(1), "erf": Fraction(0), "tanh": Fraction(0), "sigmoid": Fraction(1, 2)}
"""Functions of one number whose value at zero is a fraction, and that."""

_OF_NUMPY = {f"a{name}": f"arc{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}
"""Functions that NumPy calls by another name."""


class Field(Protocol):
    """Operations of semantic functions beyond `+`, `-` and `*`; all work element by element and broadcast."""

    def number(self, value: int | float) -> Any:
        """Return the element that stands for a literal."""

    def function(self, name: str, operand: Array) -> Array:
        """Return a function of one number by name: `exp`, `log`, `sqrt`, `erf`, `sigmoid`, `floor`, `round` (a half goes to
        the even one), the trigonometric and hyperbolic ones and their inverses.
        """

    def divide(self, left: Array, right: Array) -> Array:
        """Return the quotient."""

    def power(self, left: Array, right: Array) -> Array:
        """`left` to the power of `right`."""

    def less(self, left: Array, right: Array) -> Array:
        """Return where `left` is less than `right`."""

    def equal(self, left: Array, right: Any) -> Array:
        """Return where two indices are equal."""

    def where(self, mask: Array, left: Array, right: Array) -> Array:
        """`left` where the mask holds, `right` elsewhere."""


class Rows(Protocol):
    """The rows of an operator: the dimensions that it needs whole, together."""

    @property
    def count(self) -> int:
        """Return the number of elements of a row."""

    def total(self, operand: Any) -> Any:
        """Return the sum of every row."""

    def peak(self, operand: Any) -> Any:
        """Return what to take from a row before its powers are added up, so that none is too large."""

    def picked(self, operand: Any, index: Any) -> Any:
        """Return the element of every row that is at its index; zero where it has none there."""


class Floats:
    """Real numbers in floating point, and complex ones with a tiny imaginary part, which differentiate.

    For an analytic `f` and a step `h` that vanishes beside 1, the imaginary part of `f(x + ih)` is `h f'(x)` without the
    cancellation of a difference; comparisons look at the real part.
    """

    def number(self, value: int | float) -> Any:
        return float(value)

    def function(self, name: str, operand: Array) -> Array:
        import numpy as np

        if name == "erf":
            real = np.vectorize(erf, otypes=[float])(operand.real)
            if not np.iscomplexobj(operand):
                return np.asarray(real)
            return np.asarray(real + 1j * operand.imag * 2 / sqrt(pi) * np.exp(-np.square(operand.real)))
        if name == "sigmoid":
            with np.errstate(over="ignore"):
                return np.asarray(1 / (1 + np.exp(-operand)))
        if name in ("floor", "round"):
            return np.asarray({"floor": np.floor, "round": np.rint}[name](np.real(operand)))
        return np.asarray(getattr(np, _OF_NUMPY.get(name, name))(operand))

    def divide(self, left: Array, right: Array) -> Array:
        return left / right

    def power(self, left: Array, right: Array) -> Array:
        import numpy as np

        return np.asarray(np.power(left, right))

    def less(self, left: Array, right: Array) -> Array:
        import numpy as np

        return np.asarray(np.real(left) < np.real(right))

    def equal(self, left: Array, right: Any) -> Array:
        import numpy as np

        return np.asarray(np.real(left) == np.real(right))

    def where(self, mask: Array, left: Array, right: Array) -> Array:
        import numpy as np

        return np.where(mask, left, right)


def peak(operand: Array, axes: int | tuple[int, ...], field: Field) -> Any:
    """Return what to take from the operand before its powers are added up, so that none is too large: in floating point its
    greatest element along the axes, where it has one, and nothing elsewhere.
    """
    import numpy as np

    if not isinstance(field, Floats):
        return field.number(0)
    greatest = np.max(np.real(operand), axis=axes, keepdims=True, initial=-np.inf)
    return np.where(np.isfinite(greatest), greatest, 0.0)
