"""The part of Python's expressions that rule pages may use."""

from __future__ import annotations

import ast

from tvlint.rulebook.language.expression import ExpressionError

MAX_DEPTH = 40

_ALLOWED = frozenset(
    {
        ast.Constant, ast.Name, ast.Attribute, ast.Load, ast.List, ast.Call, ast.IfExp,
        ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub,
        ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod,
        ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn,
    }
)  # fmt: skip


def verify(node: ast.AST, depth: int = 0) -> None:
    """Raise `ExpressionError` for what Python has and the language has not."""
    if depth > MAX_DEPTH:
        raise ExpressionError(f"nested deeper than {MAX_DEPTH}")
    if type(node) not in _ALLOWED or not _is_plain(node):
        raise ExpressionError(f"`{ast.unparse(node)}` has no meaning")
    for child in ast.iter_child_nodes(node):
        verify(child, depth + 1)


def _is_plain(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value):
            return type(value) in (int, float, str)
        case ast.Attribute(value):
            return isinstance(value, ast.Name)
        case ast.Call(function):
            return isinstance(function, ast.Name)
        case ast.Compare(_, operators):
            return len(operators) == 1
    return True
