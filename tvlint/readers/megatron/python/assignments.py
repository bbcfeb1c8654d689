"""What assignments and changes of lists and tables leave in the variables of a Python program that is followed."""

from __future__ import annotations

import ast
import builtins

from tvlint.readers.megatron.python.names import CHANGES_NOTHING, Names
from tvlint.readers.megatron.python.scope import Program, Scope, Table, Thing, parts_of
from tvlint.readers.megatron.python.texts_and_lists import items_of, sum_of
from tvlint.readers.shell.values import Array, Gap, Value, bounded
from tvlint.readers.shell.words import merge


def of_module(program: Program) -> Scope:
    """Return the variables of the module as its functions find them."""
    scope = Scope(program, dict(program.variables), dict(program.tables))
    for name in program.changed:
        change(scope, name, None)
    return scope


def assign(scope: Scope, target: ast.expr, thing: Thing, is_sure: bool) -> None:
    """Let a target hold a thing; where that is not sure, what it held before stays possible."""
    if isinstance(target, (ast.Tuple, ast.List)) and (parts := parts_of(thing)) is not None and len(target.elts) == len(parts):
        for element, part in zip(target.elts, parts, strict=True):
            assign(scope, element, scope.hole(target) if part is None else part, is_sure)
        return
    if not isinstance(target, ast.Name):
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                scope.put(node.id, scope.hole(node))
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                scope.tables.pop(node.value.id, None)
        return
    was_table = target.id in scope.tables
    if isinstance(thing, Table) and (is_sure or thing == scope.tables.get(target.id)):
        scope.put(target.id, thing)
        return
    value = scope.hole(target) if isinstance(thing, Table) or (was_table and not is_sure) else thing
    if not is_sure:
        old = scope.variables.get(target.id, scope.hole(target) if target.id in scope.names.imported else value)
        value = merge([old, value], f"set under a condition at line {target.lineno}", scope.span(target))
    scope.put(target.id, bounded(value, scope.span(target)))


def with_entry(scope: Scope, statement: ast.Assign) -> tuple[str, Table] | None:
    """Return the name of a table to which a statement assigns one entry, and the table with it."""
    match statement.targets:
        case [ast.Subscript(value=ast.Name(id=name), slice=place)]:
            key = scope.text(place)
        case [ast.Attribute(value=ast.Name(id=name), attr=key)]:
            pass
        case _:
            return None
    table = scope.tables.get(name)
    if table is None or table.is_list or key is None:
        return None
    return name, Table({**table.entries, key: scope.thing(statement.value)})


def change(scope: Scope, name: str, node: ast.expr | ast.stmt | None, call: ast.Call | None = None) -> None:
    """Note that a list changes, under every name that it has: by what `append` or `extend` adds, or in an unknown way.

    A table that changes is not known further.
    """
    scope.tables.pop(name, None)
    old = scope.variables.get(name)
    if not isinstance(old, Array):
        return
    added: Value = Array((Gap("the list may be changed here", scope.span(node)),))
    if call is not None and isinstance(call.func, ast.Attribute) and len(call.args) == 1 and not call.keywords:
        if call.func.attr == "extend":
            added = scope.value(call.args[0])
        elif call.func.attr == "append":
            added = Array(tuple(items_of(scope, call.args[0], 0)))
    scope.variables[name] = sum_of(scope, old, added, node)
    forget_shared(scope, name, node)


def forget_shared(scope: Scope, name: str, node: ast.expr | ast.stmt | None) -> None:
    """Note that a list changed: where it has a second name, no list with two names is known further."""
    if name in scope.shared:
        scope.variables.update({each_name: scope.hole(node) for each_name in scope.shared})
        scope.shared.clear()


def changed_in(node: ast.AST, names: Names) -> set[str]:
    """Return the names of lists and tables that something within may change where they are."""
    found = set[str]()
    for each_node in ast.walk(node):
        match each_node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method not in CHANGES_NOTHING:
                found.add(name)
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                found.add(name)
            case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                found.add(name)
            case ast.Call(func=ast.Name(id=name)) if hasattr(builtins, name):
                continue
            case ast.Call():
                given = ((place, each) for place, each in enumerate(each_node.args) if isinstance(each, ast.Name))
                found.update(each.id for place, each in given if not names.only_reads(each_node, place))
    return found
