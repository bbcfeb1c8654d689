"""Numbers on which two operators differ: what turns a different expression into a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, isclose, isfinite, log, sqrt, tanh
from typing import Any

_SAMPLES = (0.37, 1.9, 2.6, 0.81, 3.3)

_UNARY: dict[str, Callable[[float], float]] = {
    "neg": lambda x: -x,
    "float": lambda x: x,
    "identity": lambda x: x,
    "rsqrt": lambda x: 1 / sqrt(x),
    "sqrt": sqrt,
    "exp": exp,
    "log": log,
    "tanh": tanh,
    "sigmoid": lambda x: 1 / (1 + exp(-x)),
    "relu": lambda x: max(x, 0.0),
    "silu": lambda x: x / (1 + exp(-x)),
    "abs": abs,
}


def evaluate(head: tuple[Any, ...], operands: Sequence[float]) -> float | None:
    """The value of an element-wise operator at one element; None where the operator or its attributes are not covered."""
    op, attributes = head[0], head[2]
    if op in _UNARY and len(operands) == 1:
        return _UNARY[op](operands[0])
    if op not in ("add", "sub", "mul", "div", "pow"):
        return None
    lead = attributes[:1] if op in ("add", "sub") else ()
    literals = attributes[len(lead) :]
    arguments = _arguments(operands, literals)
    if arguments is None:
        return None
    left, right = arguments
    if op in ("add", "sub"):
        alpha = lead[0] if lead else 1
        if not isinstance(alpha, int | float):
            return None
        return left + alpha * right if op == "add" else left - alpha * right
    if op == "mul":
        return left * right
    if op == "div":
        return left / right if right else None
    value = left**right
    return value if isinstance(value, float) else None


def _arguments(operands: Sequence[float], literals: tuple[Any, ...]) -> tuple[float, float] | None:
    """The two arguments, literals in their places (`literals` alternates position and value)."""
    if len(literals) % 2 or len(operands) + len(literals) // 2 != 2:
        return None
    placed: dict[int, float] = {}
    for position, value in zip(literals[::2], literals[1::2], strict=True):
        if not isinstance(value, int | float):
            return None
        placed[position] = float(value)
    rest = iter(operands)
    both = [placed[i] if i in placed else next(rest) for i in (0, 1)]
    return both[0], both[1]


def difference(expected: tuple[Any, ...], actual: tuple[Any, ...], operands: int) -> str:
    """An element on which the two operators differ, in words; empty when none was found or they are not covered."""
    for start in range(len(_SAMPLES)):
        inputs = [_SAMPLES[(start + i) % len(_SAMPLES)] for i in range(operands)]
        try:
            left, right = evaluate(expected, inputs), evaluate(actual, inputs)
        except (OverflowError, ValueError, ZeroDivisionError):
            continue
        if left is None or right is None:
            return ""
        if isfinite(left) and isfinite(right) and not isclose(left, right, rel_tol=1e-9):
            return f"at {', '.join(map(str, inputs))} it gives {right:.6g} and the reference {left:.6g}"
    return ""
