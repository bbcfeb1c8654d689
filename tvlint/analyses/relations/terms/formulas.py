"""The formulas of the operator table on a tape: what an operator is when it is written out as sums of products.

`tvlint/ops/formulas.py` has the formulas' form. What asks for more than arithmetic, such as which of two numbers is less, is
written out nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

from tvlint.analyses.relations.terms.constant_factors import NONE, Constant, constant_of, rational
from tvlint.analyses.relations.terms.expressions import TooLargeError
from tvlint.analyses.relations.terms.numbers import root_of
from tvlint.analyses.relations.terms.signs import is_positive
from tvlint.analyses.relations.terms.tape import FUNCTIONS, Indices, Tape, Variable

_ZERO: Constant = (1, Fraction(0))


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable of a tape times a constant, or the constant alone."""

    tape: Tape
    constant: Constant
    variable: Variable | None = None

    def on_tape(self) -> Variable:
        """Return the value as a variable."""
        if self.variable is None:
            return self.tape.number(self.constant)
        return self.variable if self.constant == NONE else self.tape.scaled(self.variable, self.constant)

    def scaled(self, constant: Constant) -> Symbol:
        """Return the value times a constant."""
        (sign, square), (other, times) = self.constant, constant
        return Symbol(self.tape, (sign * other, square * times), self.variable)

    def __add__(self, other: Symbol) -> Symbol:
        if other.variable is None and other.constant == _ZERO:
            return self
        if other.variable is None:
            return Symbol(self.tape, NONE, self.tape.plus(self.on_tape(), other.on_tape()))
        return Symbol(self.tape, NONE, self.tape.plus(self.on_tape(), other.variable, other.constant))

    def __sub__(self, other: Symbol) -> Symbol:
        return self + -other

    def __neg__(self) -> Symbol:
        return self.scaled(rational(-1))

    def __mul__(self, other: Symbol) -> Symbol:
        if self.variable is None or other.variable is None:
            return self.scaled(other.constant) if other.variable is None else other.scaled(self.constant)
        product = Symbol(self.tape, NONE, self.tape.times(self.variable, other.variable))
        return product.scaled(self.constant).scaled(other.constant)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The field of a tape. All methods are those of `Field`, and raise TooLargeError for what is no sum of products."""

    tape: Tape

    def number(self, value: int | float) -> Symbol:
        constant = constant_of(value)
        if constant is None:
            raise TooLargeError
        return Symbol(self.tape, constant)

    def function(self, name: str, operand: Any) -> Any:
        if name == "sqrt":
            return self._power(operand, Fraction(1, 2))
        if name not in FUNCTIONS:
            raise TooLargeError
        return Symbol(self.tape, NONE, self.tape.function(name, operand.on_tape()))

    def divide(self, left: Any, right: Any) -> Any:
        if right.variable is not None:
            return left * self._power(right, Fraction(-1))
        sign, square = right.constant
        if not square:
            raise TooLargeError
        return left.scaled((sign, 1 / square))

    def power(self, left: Any, right: Any) -> Any:
        root = root_of(right.constant[1])
        if right.variable is not None or root is None or root.denominator > 2:
            raise TooLargeError
        return self._power(left, right.constant[0] * root)

    def _power(self, operand: Symbol, exponent: Fraction) -> Symbol:
        if operand.variable is None:
            raise TooLargeError
        return Symbol(self.tape, NONE, self.tape.power(operand.on_tape(), exponent))

    def less(self, left: Any, right: Any) -> Any:
        raise TooLargeError

    def equal(self, left: Any, right: Any) -> Any:
        """Return that something that is surely positive is not zero."""
        algebra, variable = self.tape.algebra, left.variable
        positive = variable is not None and left.constant == NONE and bool(variable.value)
        if right.constant != _ZERO or not positive:
            raise TooLargeError
        if not all(is_positive(algebra.terms, term) for _, factors in variable.value for term, _, _ in factors):
            raise TooLargeError
        return False

    def where(self, mask: Any, left: Any, right: Any) -> Any:
        return left if mask else right


@dataclass(frozen=True, slots=True)
class TapeRows:
    """The rows of an operator on a tape, by their indices. The last operand says where what is picked is."""

    tape: Tape
    over: Indices
    result: Indices

    @property
    def count(self) -> int:
        sizes = [self.tape.algebra.sizes[index] for index in self.over]
        if any(cut for _, cut in sizes):
            raise TooLargeError
        return prod(size for size, _ in sizes)

    def total(self, operand: Any) -> Any:
        return Symbol(self.tape, NONE, self.tape.total(operand.on_tape(), self.over))

    def peak(self, operand: Any) -> Any:
        return Symbol(self.tape, _ZERO)

    def picked(self, operand: Any, index: Any) -> Any:
        chosen = self.tape.times(operand.on_tape(), index.on_tape())
        return Symbol(self.tape, NONE, self.tape.total(chosen, chosen.indices - self.result))


def symbols(variables: Sequence[Variable], tape: Tape) -> list[Symbol]:
    """Return variables as operands of a formula."""
    return [Symbol(tape, NONE, variable) for variable in variables]
