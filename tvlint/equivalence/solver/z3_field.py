"""The field of Z3 terms: operators as formulas over unknown reals, with `exp` and its like as any functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tvlint.ops.field import Array
from tvlint.ops.spec import Shape


def real_term(value: Any) -> Any:
    """Return the value as a real term."""
    import z3

    return value if isinstance(value, z3.ExprRef) else z3.RealVal(str(value))


class Symbols:
    """Unknowns of Z3."""

    def __init__(self) -> None:
        self.constraints: list[Any] = []
        self.ranges: list[tuple[int, int]] = []
        """The bounds of each whole number, in the order in which they were drawn."""

    def numbers(self, label: str, shape: Shape) -> Array:
        import numpy as np
        import z3

        result = np.empty(shape, dtype=object)
        for place in np.ndindex(*shape):
            result[place] = z3.Real(f"{label}{list(place)}")
        return result

    def whole_numbers(self, label: str, shape: Shape, low: int, high: int) -> Array:
        import numpy as np
        import z3

        result = np.empty(shape, dtype=object)
        for place in np.ndindex(*shape):
            result[place] = z3.Int(f"{label}{list(place)}")
            self.constraints += [result[place] >= low, result[place] < high]
            self.ranges.append((low, high))
        return result


class Given(Symbols):
    """Unknowns of Z3, but for whole numbers, which are given."""

    def __init__(self, values: Iterable[int]) -> None:
        super().__init__()
        self._values = iter(values)

    def whole_numbers(self, label: str, shape: Shape, low: int, high: int) -> Array:
        import numpy as np

        result = np.empty(shape, dtype=int)
        for place in np.ndindex(*shape):
            result[place] = next(self._values)
        return result


class RealTerms:
    """Real terms of Z3; functions that it does not interpret are any functions, but for two facts.

    `exp` is positive everywhere, and undoes `log` wherever there is a logarithm. `facts` holds the first for what was built.
    """

    def __init__(self) -> None:
        self.facts: list[Any] = []

    def number(self, value: int | float) -> Any:
        from fractions import Fraction

        import numpy as np
        import z3

        return np.array(z3.RealVal(str(Fraction(str(value)))), dtype=object)

    def function(self, name: str, operand: Array) -> Array:
        import z3

        function = z3.Function(name, z3.RealSort(), z3.RealSort())

        def one(x: Any) -> Any:
            term = real_term(x)
            if name == "exp" and z3.is_app(term) and term.decl().name() == "log":
                return term.arg(0)
            result = function(term)
            if name == "exp":
                self.facts.append(result > 0)
            return result

        return _each(one, operand)

    def divide(self, left: Array, right: Array) -> Array:
        import z3

        return _each(lambda a, b: real_term(a) * (z3.RealVal(1) / real_term(b)), left, right)

    def power(self, left: Array, right: Array) -> Array:
        import z3

        function = z3.Function("power", z3.RealSort(), z3.RealSort(), z3.RealSort())

        def one(a: Any, b: Any) -> Any:
            if z3.is_rational_value(b) and b.denominator_as_long() == 1 and 0 <= b.numerator_as_long() <= 8:
                result = z3.RealVal(1)
                for _ in range(b.numerator_as_long()):
                    result = result * a
                return result
            return function(real_term(a), real_term(b))

        return _each(one, left, right)

    def less(self, left: Array, right: Array) -> Array:
        return _each(lambda a, b: real_term(a) < real_term(b), left, right)

    def equal(self, left: Array, right: Any) -> Array:
        return _each(lambda a, b: a == b, left, right)

    def where(self, mask: Array, left: Array, right: Array) -> Array:
        import z3

        def one(m: Any, a: Any, b: Any) -> Any:
            if not isinstance(m, z3.ExprRef):
                return a if m else b
            return z3.If(m, real_term(a), real_term(b))

        return _each(one, mask, left, right)


def _each(function: Callable[..., Any], *arrays: Any) -> Array:
    import numpy as np

    return np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), dtype=object)
