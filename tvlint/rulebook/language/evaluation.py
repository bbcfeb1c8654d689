"""Evaluate expressions in three-valued logic: to a value, or to `Unknown` with the reason.

Nothing here raises on a value from a file: type errors, divisions by zero or by a negative number, and results beyond
`MAX_MAGNITUDE` are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tvlint.ir.configuration import SettingValue, Unknown
from tvlint.rulebook.language.expression import Binary, Call, Choice, Expression, ListOf, Literal, Name, Unary
from tvlint.rulebook.language.functions import FUNCTIONS, MAX_MAGNITUDE, is_number, show

Result: TypeAlias = "SettingValue | Unknown"
Lookup: TypeAlias = Callable[[str], Result]


def evaluate_expression(expression: Expression, lookup: Lookup, is_set: Lookup) -> Result:
    """The value of `expression`; `lookup` gives a name's value, `is_set` whether it is given explicitly."""

    def value(part: Expression) -> Result:
        match part:
            case Literal(constant):
                return constant
            case Name(name):
                return _bounded(lookup(name))
            case ListOf(items):
                return _all_known(tuple(value(item) for item in items))
            case Unary("not", operand):
                return _negate(_truth(value(operand)))
            case Unary(_, operand):
                return _arithmetic("-", 0, value(operand))
            case Binary("and", left, right):
                return _conjunction(value(left), lambda: value(right))
            case Binary("or", left, right):
                return _negate(_conjunction(_negate(_truth(value(left))), lambda: _negate(_truth(value(right)))))
            case Binary(operator, left, right):
                return _binary(operator, value(left), value(right))
            case Choice(condition, then, otherwise):
                return _choose(_truth(value(condition)), lambda: value(then), lambda: value(otherwise))
            case Call("set", (Name(name),)):
                return is_set(name)
            case Call("known", (argument,)):
                return not isinstance(value(argument), Unknown)
            case Call(function, arguments):
                return _call(function, _all_known(tuple(value(argument) for argument in arguments)))
        raise TypeError(f"not an expression: {part!r}")

    return value(expression)


def _bounded(value: Result) -> Result:
    if is_number(value) and abs(value) > MAX_MAGNITUDE:
        return Unknown("a number is too large")
    return value


def _all_known(values: tuple[Result, ...]) -> Result:
    known: list[SettingValue] = []
    for value in values:
        if isinstance(value, Unknown):
            return value
        known.append(value)
    return tuple(known)


def _truth(value: Result) -> bool | Unknown:
    if isinstance(value, bool | Unknown):
        return value
    return Unknown(f"{show(value)} is neither true nor false")


def _negate(value: bool | Unknown) -> bool | Unknown:
    return value if isinstance(value, Unknown) else not value


def _conjunction(left: Result, right: Callable[[], Result]) -> bool | Unknown:
    first = _truth(left)
    if first is False:
        return False
    second = _truth(right())
    if second is False:
        return False
    return first if isinstance(first, Unknown) else second


def _choose(condition: bool | Unknown, then: Callable[[], Result], otherwise: Callable[[], Result]) -> Result:
    if not isinstance(condition, Unknown):
        return then() if condition else otherwise()
    first = then()
    if not isinstance(first, Unknown) and first == otherwise():
        return first
    return condition


def _binary(operator: str, left: Result, right: Result) -> Result:
    if isinstance(left, Unknown):
        return left
    if isinstance(right, Unknown):
        return right
    if operator == "in":
        return _contained(left, right)
    if operator in ("==", "!="):
        same = _same(left, right)
        return same if operator == "==" else _negate(same)
    if operator in _ORDERS:
        return _ordered(operator, left, right)
    return _arithmetic(operator, left, right)


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


_ORDERS: Mapping[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_OPERATIONS: Mapping[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


def _ordered(operator: str, left: SettingValue, right: SettingValue) -> bool | Unknown:
    if not is_number(left) or not is_number(right):
        return Unknown(f"{show(left)} and {show(right)} have no order")
    return _ORDERS[operator](left, right)


def _arithmetic(operator: str, left: Result, right: Result) -> Result:
    if isinstance(left, Unknown):
        return left
    if isinstance(right, Unknown):
        return right
    if not is_number(left) or not is_number(right):
        return Unknown(f"{show(right if is_number(left) else left)} is not a number")
    if operator in ("/", "//", "%") and right <= 0:
        return Unknown(f"division by {show(right)}")
    try:
        return _bounded(_OPERATIONS[operator](left, right))
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
