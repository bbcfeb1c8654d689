"""Conditions of a Python program that is followed: whether they hold, and how they read."""

from __future__ import annotations

import ast
import builtins

from tvlint.readers.megatron.python.scope import Scope
from tvlint.readers.shell.values import Array

FALSE = frozenset({"False", "None", "0", "0.0", ""})


def decide(scope: Scope, test: ast.expr) -> bool | None:
    """Return whether a condition holds; None where that is not known."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            decided = decide(scope, inner)
            return None if decided is None else not decided
        case ast.BoolOp(op=ast.And(), values=parts):
            all_decided = [decide(scope, each) for each in parts]
            return False if False in all_decided else None if None in all_decided else True
        case ast.BoolOp(op=ast.Or(), values=parts):
            all_decided = [decide(scope, each) for each in parts]
            return True if True in all_decided else None if None in all_decided else False
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            one, other = (scope.text(each) for each in (left, right))
            if one is None or other is None:
                return None
            if isinstance(operator, (ast.Is, ast.Eq)):
                return one == other
            return one != other if isinstance(operator, (ast.IsNot, ast.NotEq)) else None
        case ast.Call(func=ast.Name(id="isinstance"), args=[asked, ast.Name(id="bool")]):
            text = scope.text(asked)
            return None if text is None else text in ("True", "False")
        case ast.Call(func=ast.Name(id="isinstance"), args=[asked, ast.Name(id="list")]):
            return isinstance(scope.value(asked), Array) or None
        case ast.Name() | ast.Subscript() | ast.Attribute():
            text = scope.text(test)
            return None if text is None else text not in FALSE
    return None


def is_given(scope: Scope, test: ast.expr) -> bool:
    """Return whether a condition asks for nothing but what a round or a call gives."""
    asked = {node.id for node in ast.walk(test) if isinstance(node, ast.Name) and not hasattr(builtins, node.id)}
    return bool(asked) and asked <= scope.given


def also(condition: str, first: str, more: str) -> str:
    """Return a condition in words with one more, which `first` opens where it is the only one."""
    return f"{condition} and {more}" if condition else f"{first} {more}"
