"""Arithmetic on sums of products, done on a tape: gradients go back through it by the chain rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from tvlint.analyses.relations.terms.constant_factors import NONE, Constant, rational
from tvlint.analyses.relations.terms.expressions import CIRCLE, ONE, Expression, TooLargeError
from tvlint.analyses.relations.terms.joined_sums import Algebra
from tvlint.ops.field import AT_ZERO

Indices: TypeAlias = frozenset[int]


@dataclass(frozen=True, slots=True)
class Variable:
    """A value on the tape: what it is, and the indices that it has."""

    number: int
    value: Expression
    indices: Indices


Back: TypeAlias = Callable[[Expression], Expression]


@dataclass(slots=True)
class Tape:
    """Arithmetic as it is done, and how gradients go back through it."""

    algebra: Algebra
    count: int = 0
    steps: list[tuple[Variable, tuple[tuple[Variable, Back], ...]]] = field(default_factory=list)

    def given(self, value: Expression, indices: Indices) -> Variable:
        self.count += 1
        return Variable(self.count, value, indices)

    def _made(self, value: Expression, indices: Indices, *sources: tuple[Variable, Back]) -> Variable:
        made = self.given(value, indices)
        self.steps.append((made, sources))
        return made

    def times(self, one: Variable, other: Variable) -> Variable:
        multiplied = self.algebra.multiplied
        value = multiplied(one.value, other.value)
        sources = ((one, lambda g: multiplied(g, other.value)), (other, lambda g: multiplied(g, one.value)))
        return self._made(value, one.indices | other.indices, *sources)

    def plus(self, one: Variable, other: Variable, factor: Constant = NONE) -> Variable:
        scaled = self.algebra.scaled
        value = self.algebra.added(one.value, scaled(other.value, factor))
        return self._made(value, one.indices | other.indices, (one, lambda g: g), (other, lambda g: scaled(g, factor)))

    def scaled(self, one: Variable, factor: Constant) -> Variable:
        scaled = self.algebra.scaled
        return self._made(scaled(one.value, factor), one.indices, (one, lambda g: scaled(g, factor)))

    def number(self, constant: Constant) -> Variable:
        return self.given(self.algebra.number(constant), frozenset())

    def power(self, one: Variable, exponent: Fraction) -> Variable:
        algebra = self.algebra

        def back(gradient: Expression) -> Expression:
            slope = algebra.scaled(algebra.power(one.value, exponent - 1), rational(exponent))
            return algebra.multiplied(gradient, slope)

        return self._made(algebra.power(one.value, exponent), one.indices, (one, back))

    def total(self, one: Variable, over: Indices) -> Variable:
        return self._made(self.algebra.total(one.value, over), one.indices - over, (one, lambda g: g))

    def function(self, name: str, one: Variable) -> Variable:
        if name == "sigmoid":
            below = self.plus(self.number(NONE), self.function("exp", self.scaled(one, (-1, ONE))))
            return self.power(below, -ONE)
        algebra = self.algebra
        value = algebra.function(name, one.value)
        return self._made(value, one.indices, (one, lambda g: algebra.multiplied(g, _slope(algebra, name, one.value, value))))

    def gradient(self, last: Variable, gradient: Expression, of: Variable) -> Expression:
        """Return the gradient of `of`, from that of `last`."""
        algebra = self.algebra
        known: dict[int, Expression] = {last.number: gradient}
        for made, sources in reversed(self.steps):
            expression = known.get(made.number)
            for source, back in sources if expression is not None else ():
                assert expression is not None
                found = algebra.total(back(expression), made.indices - source.indices)
                known[source.number] = algebra.added(known.get(source.number, ()), found)
        return known.get(of.number, ())


FUNCTIONS = frozenset(AT_ZERO) | {"log"}
"""Functions of one number that a tape has, with their derivatives."""


def _slope(algebra: Algebra, name: str, at: Expression, value: Expression) -> Expression:
    """Return the derivative of a function, of which `value` is the value."""
    one, minus = algebra.number(NONE), (-1, ONE)
    if name == "exp":
        return value
    if name == "log":
        return algebra.power(at, Fraction(-1))
    if name == "tanh":
        return algebra.added(one, algebra.scaled(algebra.power(value, Fraction(2)), minus))
    if name == "erf":
        circle = algebra.terms.term((CIRCLE,), (), (), -1)
        below = algebra.scaled(algebra.power(at, Fraction(2)), minus)
        bell = algebra.function("exp", below)
        root = algebra.power(((NONE, ((circle, (), ONE),)),), Fraction(-1, 2))
        return algebra.scaled(algebra.multiplied(root, bell), (1, Fraction(4)))
    raise TooLargeError
