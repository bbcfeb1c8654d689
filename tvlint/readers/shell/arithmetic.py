"""Integer arithmetic of the shell, over known variables only."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from tvlint.ir.patterns import Pattern
from tvlint.readers.shell.state import DEEPEST, State, as_scalar
from tvlint.readers.shell.values import Piece, from_outside, known_text, unknown_reason

if TYPE_CHECKING:
    from tree_sitter import Node

LARGEST = 1 << 63
NUMBER = Pattern(r"-?(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,19})")


class _Unknown(Exception):
    pass


def evaluate_arithmetic(state: State, node: Node, expand_text: Callable[[Node], tuple[Piece, ...]]) -> tuple[int | str, bool]:
    """Return the value of an arithmetic expression, or why it is unknown, and whether the environment may change it."""
    outside: list[bool] = []
    try:
        return _value(state, node, expand_text, outside, 0), any(outside)
    except _Unknown as unknown:
        return str(unknown), False


def _value(state: State, node: Node, expand_text: Callable[[Node], tuple[Piece, ...]], outside: list[bool], depth: int) -> int:
    state.spend()
    if depth > DEEPEST:
        raise _Unknown("nested too deeply")

    def inner(child: Node | None) -> int:
        if child is None:
            raise _Unknown("depends on arithmetic that is not understood")
        return _value(state, child, expand_text, outside, depth + 1)

    kind = node.type
    if kind == "binary_expression":
        return _binary(state, node, inner)
    if kind == "parenthesized_expression" and len(node.named_children) == 1:
        return inner(node.named_children[0])
    if kind == "unary_expression" and len(node.children) == 2:
        return _unary(state.text(node.children[0]), inner(node.children[1]))
    if kind == "ternary_expression":
        chosen = "consequence" if inner(node.child_by_field_name("condition")) else "alternative"
        return inner(node.child_by_field_name(chosen))
    if kind in ("variable_name", "word") and re.fullmatch(r"[A-Za-z_]\w*", state.text(node)):
        value = state.variables.get(state.text(node))
        scalar = as_scalar(value) if value is not None else None
        if scalar is None:
            raise _Unknown(f"`{state.text(node)}` is not set in the file")
        return _number(scalar.pieces, outside)
    if kind in ("number", "word", "simple_expansion", "expansion", "string", "arithmetic_expansion", "concatenation"):
        return _number(expand_text(node), outside)
    if kind == "command_substitution":
        return _number(expand_text(node), outside)
    raise _Unknown("depends on arithmetic that is not understood")


def _number(pieces: tuple[Piece, ...], outside: list[bool]) -> int:
    text = known_text(pieces)
    if text is None:
        raise _Unknown(unknown_reason(pieces))
    outside.append(from_outside(pieces))
    text = text.strip()
    if not text:
        return 0
    if not NUMBER.fullmatch(text):
        raise _Unknown("depends on arithmetic over text that is no number")
    if text.lstrip("-")[:2].lower() == "0x":
        return int(text, 16)
    digits = text.lstrip("-")
    if digits.startswith("0") and len(digits) > 1:
        if set(digits) & set("89"):
            raise _Unknown("depends on arithmetic over text that is no number")
        return int(text, 8)
    return int(text)


def _unary(operator: str, value: int) -> int:
    results = {"-": -value, "+": value, "!": int(not value), "~": ~value}
    if operator not in results:
        raise _Unknown("depends on arithmetic that is not understood")
    return results[operator]


def _binary(state: State, node: Node, inner: Callable[[Node | None], int]) -> int:
    operator = node.child_by_field_name("operator")
    sign = state.text(operator) if operator is not None else ""
    left, right = inner(node.child_by_field_name("left")), inner(node.child_by_field_name("right"))
    if sign in ("/", "%"):
        if right == 0:
            raise _Unknown("divides by zero")
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if sign == "/" else left - quotient * right
    if sign == "**" and 0 <= right <= 63 and abs(left) < LARGEST:
        return _in_range(left**right)
    results: dict[str, Callable[[], int]] = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "<": lambda: int(left < right),
        ">": lambda: int(left > right),
        "<=": lambda: int(left <= right),
        ">=": lambda: int(left >= right),
        "==": lambda: int(left == right),
        "!=": lambda: int(left != right),
        "&&": lambda: int(bool(left and right)),
        "||": lambda: int(bool(left or right)),
    }
    if sign not in results:
        raise _Unknown("depends on arithmetic that is not understood")
    return _in_range(results[sign]())


def _in_range(value: int) -> int:
    if abs(value) >= LARGEST:
        raise _Unknown("overflows")
    return value
