"""The language of `when:`, `require:` and of the `{...}` in templates: a part of the expressions of Python.

Only rule pages and tvlint itself write expressions, so a wrong one is our mistake and raises `ExpressionError`. Python parses
them and never runs them: `evaluation` says what they mean, and knows few nodes. That the pages have no others is tested.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

MAX_LENGTH = 4000

Expression: TypeAlias = ast.expr
Constant: TypeAlias = "int | float | str | bool | None"

CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "none": None}
"""Names of constants, which are not those of Python."""


class ExpressionError(ValueError):
    """An expression that does not parse; says where."""


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Return the syntax tree of `text`, as Python parses it."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"more than {MAX_LENGTH} characters in `{text[:60]}...`")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"{error} in `{text[:200]}`") from None


def name_of(expression: Expression) -> str:
    """Return the name that `expression` is: of a setting, a derived value, or a variable (`env.NAME`); empty for others."""
    match expression:
        case ast.Name(name):
            return "" if name in CONSTANTS else name
        case ast.Attribute(ast.Name(scope), name):
            return f"{scope}.{name}"
    return ""


def is_constant(expression: Expression) -> bool:
    """Return whether the expression is a number, a text, `true`, `false` or `none`."""
    return isinstance(expression, ast.Constant) or (isinstance(expression, ast.Name) and expression.id in CONSTANTS)


def constant_of(expression: Expression) -> Constant:
    """Return the value of a constant."""
    match expression:
        case ast.Constant(int() | float() | str() as value) if not isinstance(value, bool):
            return value
        case ast.Name(name) if name in CONSTANTS:
            return CONSTANTS[name]
    raise ExpressionError(f"`{ast.unparse(expression)}` is no constant")


def conjuncts(expression: Expression) -> Iterator[Expression]:
    """Yield the parts that `and` joins, in order; the expression itself where it is no conjunction."""
    match expression:
        case ast.BoolOp(ast.And(), parts):
            for part in parts:
                yield from conjuncts(part)
        case _:
            yield expression


def names(expression: Expression) -> Iterator[str]:
    """Yield the names that `expression` reads, in order, with repetitions."""
    match expression:
        case ast.Name() | ast.Attribute():
            if name := name_of(expression):
                yield name
        case ast.Call(_, arguments):
            for argument in arguments:
                yield from names(argument)
        case _:
            for child in ast.iter_child_nodes(expression):
                if isinstance(child, ast.expr):
                    yield from names(child)
