"""Evaluate expressions of a Python recipe statically: literals, simple arithmetic, constants."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from tvlint.ir.configuration import SettingValue, Unknown

DEEPEST = 12
MOST_ITEMS = 4096
LARGEST_NUMBER = 1 << 63
LONGEST_TEXT = 4096


def value(node: ast.expr, constants: Mapping[str, SettingValue], depth: int = 0) -> SettingValue | Unknown:
    """Return the value of `node`; `Unknown` for everything that would have to be run."""
    if depth > DEEPEST:
        return Unknown("the expression is nested too deeply")
    if isinstance(node, ast.Constant):
        return _constant(node.value)
    if isinstance(node, ast.Name):
        if node.id in constants:
            return constants[node.id]
        return Unknown(f"depends on `{node.id[:80]}`")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        operand = value(node.operand, constants, depth + 1)
        return _number(-operand) if isinstance(operand, int | float) and not isinstance(operand, bool) else _computed(operand)
    if isinstance(node, ast.BinOp):
        return _arithmetic(node.op, value(node.left, constants, depth + 1), value(node.right, constants, depth + 1))
    if isinstance(node, ast.List | ast.Tuple):
        return _items(node.elts, constants, depth)
    return Unknown("depends on a computation", given=isinstance(node, ast.Attribute | ast.Dict | ast.Lambda))


def _constant(constant: object) -> SettingValue | Unknown:
    if constant is None or isinstance(constant, bool):
        return constant
    if isinstance(constant, int | float):
        return _number(constant)
    if isinstance(constant, str) and len(constant) <= LONGEST_TEXT:
        return constant
    return Unknown("not a plain value", given=True)


def _number(number: int | float) -> SettingValue | Unknown:
    return number if abs(number) < LARGEST_NUMBER else Unknown("a number is too large", given=True)


def _computed(operand: SettingValue | Unknown) -> Unknown:
    return operand if isinstance(operand, Unknown) else Unknown("depends on a computation")


def _arithmetic(operator: ast.operator, left: SettingValue | Unknown, right: SettingValue | Unknown) -> SettingValue | Unknown:
    if not isinstance(left, int) or isinstance(left, bool):
        return _computed(left)
    if not isinstance(right, int) or isinstance(right, bool):
        return _computed(right)
    if isinstance(operator, ast.Add):
        return _number(left + right)
    if isinstance(operator, ast.Sub):
        return _number(left - right)
    if isinstance(operator, ast.Mult):
        return _number(left * right)
    if isinstance(operator, ast.FloorDiv) and right > 0:
        return _number(left // right)
    if isinstance(operator, ast.Pow) and 0 <= right <= 62 and abs(left) <= 2:
        return _number(left**right)
    return Unknown("depends on a computation")


def _items(nodes: Sequence[ast.expr], constants: Mapping[str, SettingValue], depth: int) -> SettingValue | Unknown:
    if len(nodes) > MOST_ITEMS:
        return Unknown("the list is too long", given=True)
    found: list[SettingValue] = []
    for node in nodes:
        item = value(node, constants, depth + 1)
        if isinstance(item, Unknown):
            return Unknown("the list holds more than plain values", given=True)
        found.append(item)
    return tuple(found)
