"""Expressions of generated code: constants under names, choices that are known, and calls that are written otherwise."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from copy import copy, deepcopy

from tvlint.readers.sources.python_syntax import NotConstant, constant, dotted

TRAINING = "self.training"
IFEXPR = "nnscaler.runtime.function.ifexpr"
ANCHORS = frozenset({"nnscaler.runtime.function.anchor", "nnscaler.runtime.function.function.anchor"})
"""What marks a place in a model, and gives nothing."""
GETITEM = "_operator.getitem"
_IDENTITY = "nnscaler.runtime.function.identity"
_PLAIN = frozenset({"torch", "inf", "nan", "float", "slice", "np", "numpy"})
"""The names that constants are written with."""


class _FillIn(ast.NodeTransformer):
    """Puts expressions in the place of the names that stand for them."""

    def __init__(self, constants: Mapping[str, ast.expr]) -> None:
        self.constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.constants.get(node.id)
        return node if found is None else ast.copy_location(copy(found), node)


def filled_in(node: ast.expr, constants: Mapping[str, ast.expr]) -> ast.expr:
    """Return the expression with what names stand for in their place; `node` itself where it has none of them."""
    if not any(isinstance(each_node, ast.Name) and each_node.id in constants for each_node in ast.walk(node)):
        return node
    found = _FillIn(constants).visit(deepcopy(node))
    assert isinstance(found, ast.expr)
    return found


def folded(node: ast.expr) -> ast.expr:
    """Return the branch that a choice takes while the model trains, and nothing for what gives nothing; else the expression."""
    while isinstance(node, ast.IfExp):
        known = _truth(node.test)
        if known is None:
            return node
        node = node.body if known else node.orelse
    if isinstance(node, ast.Call) and dotted(node.func) in ANCHORS:
        return ast.copy_location(ast.Constant(None), node)
    return node


def _truth(node: ast.expr) -> bool | None:
    """Return whether a constant is true; None for everything else."""
    if dotted(node) == TRAINING:
        return True
    return bool(node.value) if isinstance(node, ast.Constant) else None


def is_constant(node: ast.expr) -> bool:
    """Return whether the expression is a constant, written out, or says that the model trains."""
    if dotted(node) == TRAINING:
        return True
    if not all(each_node.id in _PLAIN for each_node in ast.walk(node) if isinstance(each_node, ast.Name)):
        return False
    try:
        constant(node)
    except NotConstant:
        return False
    return True


def as_call(node: ast.expr) -> ast.Call | None:
    """Return the call that makes what the expression is; None where it is written as no call that nnScaler generates."""
    match node:
        case ast.Call():
            return node
        case ast.Name() | ast.Attribute(value=ast.Name(id="self")):
            return _call(_IDENTITY, node, [node])
        case ast.Subscript(value=ast.Name() as value, slice=index):
            return _call(GETITEM, node, [value, _index(index)])
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _call(IFEXPR, node, [test, body, orelse])
        case _:
            return None


def _index(node: ast.expr) -> ast.expr:
    """Return an index as it is written in a call."""
    if isinstance(node, ast.Tuple):
        return ast.copy_location(ast.Tuple([_index(item) for item in node.elts], ast.Load()), node)
    if isinstance(node, ast.Slice):
        bounds = [ast.Constant(None) if one is None else one for one in (node.lower, node.upper, node.step)]
        return ast.copy_location(ast.Call(ast.Name("slice", ast.Load()), bounds, []), node)
    return node


def _call(function: str, node: ast.expr, arguments: list[ast.expr]) -> ast.Call:
    name, *parts = function.split(".")
    called: ast.expr = ast.Name(name, ast.Load())
    for part in parts:
        called = ast.Attribute(called, part, ast.Load())
    return ast.fix_missing_locations(ast.copy_location(ast.Call(called, arguments, []), node))


def opaque_op(node: ast.AST) -> str:
    """Return the name of a statement that is not understood as an operator: `python.for_`."""
    return f"python.{type(node).__name__.lower()}_"


def names_in(node: ast.AST) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names that a statement reads, those of attributes of `self` among them, and those that it binds."""
    read: dict[str, None] = {}
    bound: dict[str, None] = {}
    for each_node in ast.walk(node):
        if isinstance(each_node, ast.Name):
            (bound if isinstance(each_node.ctx, ast.Store) else read)[each_node.id] = None
        elif isinstance(each_node, ast.Attribute) and dotted(each_node.value) == "self":
            read[each_node.attr] = None
    return tuple(read), tuple(bound)


def may_act(node: ast.AST) -> bool:
    """Return whether a statement, or an expression, may do something else than bind names to values of expressions."""
    if not isinstance(node, (ast.Assign, ast.expr)):
        return True
    acting = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom)
    stores = (ast.Attribute, ast.Subscript)
    return any(
        isinstance(each_node, acting) or (isinstance(each_node, stores) and isinstance(each_node.ctx, ast.Store))
        for each_node in ast.walk(node)
    )
