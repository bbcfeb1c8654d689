"""Operators as formulas: what one makes of an element, or of a row, of each operand.

A formula is stated once and computes with whatever has `+`, `-` and `*` and a field: with arrays of numbers, so that the
semantics of the operator follows (`evaluated`), and with terms of a proof, which are thus written out as arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvlint.ir.operators import Value
from tvlint.ops.field import Array, Field, Rows, peak
from tvlint.ops.named_arrays import aligned, as_array, every_name, spread
from tvlint.ops.spec import Bound, Evaluate, Formula, OpSpec, UnsupportedError
from tvlint.plurals import counted


def by_formula(formula: Formula, spec: OpSpec) -> OpSpec:
    """Return the operator with its formula, and with the semantics that follows."""
    return replace(spec, formula=formula, evaluate=evaluated(formula))


def of_elements(function: Callable[..., Any]) -> Formula:
    """Return the formula of a function of an element and the field, and of constants if it has some."""

    def formula(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
        return function(one(operands), field, *(None if value is None else numeral(value, field) for value in attributes))

    return formula


def numeral(value: Value, field: Field) -> Any:
    """Return a constant that is a number as an element; raises UnsupportedError for any other."""
    return field.number(constant(value))


def constant(value: Value) -> int | float:
    """Return a constant that is a number; raises UnsupportedError for any other."""
    if not isinstance(value, int | float):
        raise UnsupportedError(f"the constant {value}")
    return value


def one(operands: Sequence[Any]) -> Any:
    """Return the operand; raises UnsupportedError where there are several."""
    if len(operands) != 1:
        raise UnsupportedError(f"{counted(len(operands), 'operand')} in the place of one")
    return operands[0]


def with_constants(operands: Sequence[Any], literals: Sequence[Value], field: Field) -> list[Any]:
    """Return operands with constants among them: `literals` are the position and the value of each."""
    found = list(operands)
    for position, value in zip(literals[::2], literals[1::2], strict=True):
        if not isinstance(value, int | float) or not isinstance(position, int):
            raise UnsupportedError(f"a constant operand {value}")
        found.insert(position, field.number(value))
    return found


def two(operands: Sequence[Any], literals: Sequence[Value], field: Field) -> tuple[Any, Any]:
    """Return two operands, one of which may be a constant: `literals` are its position and its value."""
    found = with_constants(operands, literals, field)
    if len(found) != 2:
        raise UnsupportedError(f"{counted(len(found), 'operand')} in the place of two")
    return found[0], found[1]


@dataclass(frozen=True, slots=True)
class _Axes:
    """The rows of arrays that are aligned: their axes, and where each begins."""

    count: int
    axes: tuple[int, ...]
    first: int
    field: Field

    def total(self, operand: Array) -> Array:
        result: Array = operand.sum(axis=self.axes, keepdims=True)
        return result

    def peak(self, operand: Array) -> Any:
        return peak(operand, self.axes, self.field)

    def picked(self, operand: Array, index: Array) -> Array:
        import numpy as np

        places = (np.arange(self.count) + self.first).reshape([-1 if at in self.axes else 1 for at in range(operand.ndim)])
        here = self.field.equal(index, places)
        return self.total(self.field.where(here, operand, self.field.number(0)))


def evaluated(formula: Formula) -> Evaluate:
    """Return the semantics of an operator that is a formula: of its elements or rows, summed or averaged as its bound says."""

    def evaluate(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
        names = every_name(bound)
        arrays = aligned(bound, operands, names)
        sizes = [max(array.shape[axis] for array in arrays) for axis in range(len(names))]
        axes = tuple(axis for axis, name in enumerate(names) if name in bound.whole or name in bound.indices.values())
        first = min((start for start, _ in bound.ranges.values()), default=0)
        found = formula(field, _Axes(prod(sizes[axis] for axis in axes), axes, first, field), arrays, bound.attributes)
        (result,) = bound.outputs
        gone = tuple(axis for axis, name in enumerate(names) if name not in result)
        total = as_array(found.sum(axis=gone) if gone else found)
        for axis in gone:
            if names[axis] in bound.averaged:
                total = field.divide(total, field.number(sizes[axis]))
        return (spread(as_array(total), [name for name in names if name in result], result),)

    return evaluate
