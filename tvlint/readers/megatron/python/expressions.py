"""Expressions of a Python program that is followed: evaluated, never run."""

from __future__ import annotations

import ast

from tvlint.readers.megatron.python.called_values import called_value
from tvlint.readers.megatron.python.rounds import comprehended
from tvlint.readers.megatron.python.scope import DEEPEST, Scope, Table, Thing
from tvlint.readers.megatron.python.tables import entry_of
from tvlint.readers.megatron.python.texts_and_lists import computed_of, items_of, of_entry, pieces_of, sum_of
from tvlint.readers.shell.values import Array, Scalar, Value, bounded
from tvlint.readers.shell.words import merge

_MOST_BITS = 64
"""Constants of more bits are not followed."""


def value_of(scope: Scope, node: ast.expr, depth: int = 0) -> Value:
    """Return the text or the list that an expression gives, with holes for what is not known."""
    value = bounded(_evaluated(scope, node, depth), scope.span(node))
    scope.spend(value, node)
    return value


def _evaluated(scope: Scope, node: ast.expr, depth: int) -> Value:
    if depth > DEEPEST:
        return scope.hole(node)
    match node:
        case ast.Constant(value=int() as constant) if constant.bit_length() > _MOST_BITS:
            return scope.hole(node)
        case ast.Constant(value=bool() | int() | float() | None as constant):
            return scope.plain(str(constant), node)
        case ast.JoinedStr() | ast.Constant():
            return Scalar(tuple(pieces_of(scope, node, depth)))
        case ast.Name():
            return scope.named(node)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return Array(tuple(item for element in elements for item in items_of(scope, element, depth)))
        case ast.BinOp(op=ast.Add()):
            return sum_of(scope, scope.value(node.left, depth + 1), scope.value(node.right, depth + 1), node)
        case ast.BinOp(op=operator):
            pieces = computed_of(scope, operator, scope.value(node.left, depth + 1), scope.value(node.right, depth + 1), node)
            return Scalar(pieces) if pieces is not None else scope.hole(node)
        case ast.IfExp():
            both = [scope.value(each_node, depth + 1) for each_node in (node.body, node.orelse)]
            return merge(both, f"depends on a condition at line {node.lineno}", scope.span(node))
        case ast.ListComp(elt=element, generators=generators) | ast.GeneratorExp(elt=element, generators=generators):
            rounds = comprehended(scope, generators, lambda inner: tuple(items_of(inner, element, depth + 1)), depth)
            return scope.hole(node) if rounds is None else Array(tuple(item for each in rounds for item in each))
        case ast.Attribute() | ast.Subscript():
            return of_entry(scope, node, entry_of(scope, node, depth + 1), depth + 1)
        case ast.Call():
            return called_value(scope, node, depth + 1)
    return scope.hole(node)


def thing_of(scope: Scope, node: ast.expr, depth: int = 0) -> Thing:
    """Return what an expression gives: a table where it is one that is known, else a text or a list."""
    if isinstance(node, (ast.Attribute, ast.Subscript)) and depth <= DEEPEST and getattr(node, "attr", "") != "__dict__":
        found = entry_of(scope, node, depth + 1)
        value = found if isinstance(found, Table) else bounded(of_entry(scope, node, found, depth + 1), scope.span(node))
        if not isinstance(value, Table):
            scope.spend(value, node)
        return value
    table = scope.table(node, depth)
    return table if table is not None else scope.value(node, depth)
