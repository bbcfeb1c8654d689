"""Evaluate expressions in three-valued logic: to a value, or to `Unknown` with the reason.

Nothing here raises on a value from a file: type errors, divisions by zero or by a negative number, and results beyond
`MAX_MAGNITUDE` are unknown.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeAlias

from tvlint.ir.configuration import SettingValue, Unknown
from tvlint.rulebook.language.expression import Expression, ExpressionError, constant_of, is_constant, name_of
from tvlint.rulebook.language.functions import FUNCTIONS, MAX_MAGNITUDE, is_number, show

Result: TypeAlias = "SettingValue | Unknown"
Lookup: TypeAlias = Callable[[str], Result]
_Term: TypeAlias = Callable[[Lookup, Lookup], Result]


def evaluate_expression(expression: Expression, lookup: Lookup, is_set: Lookup) -> Result:
    """Return the value of `expression`; `lookup` gives a name's value, `is_set` whether it is given explicitly."""
    return _term(expression)(lookup, is_set)


@lru_cache(maxsize=1 << 14)
def _term(expression: Expression) -> _Term:
    """Return the function that evaluates an expression; a page is judged for many files."""
    match expression:
        case _ if is_constant(expression):
            constant = constant_of(expression)
            return lambda lookup, is_set: constant
        case ast.Name() | ast.Attribute() if name_of(expression):
            name = name_of(expression)
            return lambda lookup, is_set: _bounded(lookup(name))
        case ast.List(items):
            return _list(items)
        case ast.UnaryOp(ast.Not(), operand):
            negated = _term(operand)
            return lambda lookup, is_set: _negate(_truth(negated(lookup, is_set)))
        case ast.UnaryOp(ast.USub(), operand):
            minus = _term(operand)
            return lambda lookup, is_set: _arithmetic(ast.Sub, 0, minus(lookup, is_set))
        case ast.BoolOp(junction, operands):
            return _junction(operands, decides=isinstance(junction, ast.Or))
        case ast.BinOp(left, sign, right) | ast.Compare(left, [sign], [right]) if type(sign) in _BETWEEN:
            one, other, kind = _term(left), _term(right), type(sign)
            return lambda lookup, is_set: _binary(kind, one(lookup, is_set), other(lookup, is_set))
        case ast.IfExp(condition, then, otherwise):
            asked, first, second = _term(condition), _term(then), _term(otherwise)
            return lambda lookup, is_set: _choose(
                _truth(asked(lookup, is_set)), lambda: first(lookup, is_set), lambda: second(lookup, is_set)
            )
        case ast.Call(ast.Name("set"), [argument], []) if name_of(argument):
            given = name_of(argument)
            return lambda lookup, is_set: is_set(given)
        case ast.Call(ast.Name("known"), [argument], []):
            inner = _term(argument)
            return lambda lookup, is_set: not isinstance(inner(lookup, is_set), Unknown)
        case ast.Call(ast.Name(function), arguments, []):
            listed = _list(arguments)
            return lambda lookup, is_set: _call(function, listed(lookup, is_set))
    raise ExpressionError(f"`{ast.unparse(expression)}` has no meaning")


def _list(expressions: list[Expression]) -> _Term:
    """Return the function that gives the values in a tuple, or the first that is unknown."""
    items = [_term(expression) for expression in expressions]

    def value(lookup: Lookup, is_set: Lookup) -> Result:
        known: list[SettingValue] = []
        for item in items:
            found = item(lookup, is_set)
            if isinstance(found, Unknown):
                return found
            known.append(found)
        return tuple(known)

    return value


def _junction(parts: list[Expression], decides: bool) -> _Term:
    """Return the function for parts of which one that is `decides` decides the whole: False for `and`, True for `or`.

    Its parts become functions where they are asked for: the first decides most conditions.
    """

    def value(lookup: Lookup, is_set: Lookup) -> Result:
        found: bool | Unknown = not decides
        for part in parts:
            truth = _truth(_term(part)(lookup, is_set))
            if truth is decides:
                return decides
            if isinstance(truth, Unknown) and not isinstance(found, Unknown):
                found = truth
        return found

    return value


def _bounded(value: Result) -> Result:
    if is_number(value) and abs(value) > MAX_MAGNITUDE:
        return Unknown("a number is too large")
    return value


def _truth(value: Result) -> bool | Unknown:
    if value is True or value is False or isinstance(value, Unknown):
        return value
    return Unknown(f"{show(value)} is neither true nor false")


def _negate(value: bool | Unknown) -> bool | Unknown:
    return value if isinstance(value, Unknown) else not value


def _choose(condition: bool | Unknown, then: Callable[[], Result], otherwise: Callable[[], Result]) -> Result:
    if not isinstance(condition, Unknown):
        return then() if condition else otherwise()
    first = then()
    if not isinstance(first, Unknown) and first == otherwise():
        return first
    return condition


def _binary(kind: type[ast.AST], left: Result, right: Result) -> Result:
    if isinstance(left, Unknown):
        return left
    if isinstance(right, Unknown):
        return right
    if kind in (ast.In, ast.NotIn):
        contained = _contained(left, right)
        return contained if kind is ast.In else _negate(contained)
    if kind in (ast.Eq, ast.NotEq):
        same = _same(left, right)
        return same if kind is ast.Eq else _negate(same)
    if kind in _ORDERS:
        return _ordered(kind, left, right)
    return _arithmetic(kind, left, right)


def _same(left: SettingValue, right: SettingValue) -> bool | Unknown:
    if left is None or right is None:
        return left is right
    if (is_number(left) and is_number(right)) or type(left) is type(right):
        return left == right
    return Unknown(f"{show(left)} and {show(right)} are of different types")


def _contained(item: SettingValue, items: SettingValue) -> bool | Unknown:
    if not isinstance(items, tuple):
        return Unknown(f"{show(items)} is not a list")
    found: bool | Unknown = False
    for other in items:
        same = _same(item, other)
        if same is True:
            return True
        if isinstance(same, Unknown):
            found = same
    return found


_ORDERS: Mapping[type[ast.AST], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_OPERATIONS: Mapping[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_BETWEEN = frozenset({*_ORDERS, *_OPERATIONS, ast.Eq, ast.NotEq, ast.In, ast.NotIn})


def _ordered(kind: type[ast.AST], left: SettingValue, right: SettingValue) -> bool | Unknown:
    if not is_number(left) or not is_number(right):
        return Unknown(f"{show(left)} and {show(right)} have no order")
    return _ORDERS[kind](left, right)


def _arithmetic(kind: type[ast.AST], left: Result, right: Result) -> Result:
    if isinstance(left, Unknown):
        return left
    if isinstance(right, Unknown):
        return right
    if not is_number(left) or not is_number(right):
        return Unknown(f"{show(right if is_number(left) else left)} is not a number")
    if kind in (ast.Div, ast.FloorDiv, ast.Mod) and right <= 0:
        return Unknown(f"division by {show(right)}")
    try:
        return _bounded(_OPERATIONS[kind](left, right))
    except (ArithmeticError, ValueError):
        return Unknown("the arithmetic overflows")


def _call(function: str, arguments: Result) -> Result:
    if isinstance(arguments, Unknown):
        return arguments
    assert isinstance(arguments, tuple)
    try:
        found: SettingValue = FUNCTIONS[function](*arguments)
    except (ArithmeticError, ValueError) as error:
        return Unknown(str(error))
    return found
