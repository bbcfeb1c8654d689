"""Expressions that give tables: dictionaries, objects with fields, and lists of other things than texts; and their entries."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tvlint.readers.megatron.python.assignments import of_module
from tvlint.readers.megatron.python.names import ANY
from tvlint.readers.megatron.python.rounds import comprehended
from tvlint.readers.megatron.python.scope import DEEPEST, Scope, Table, Thing
from tvlint.readers.megatron.python.texts_and_lists import from_outside
from tvlint.readers.shell.values import Array, Scalar, Word

MOST_KEYS = 12
"""Of a table with more entries, none is supposed to be meant."""
SAME_TABLE = frozenset({"dataclasses.asdict", "copy.copy", "copy.deepcopy"})


def table_of(scope: Scope, node: ast.expr, depth: int) -> Table | None:
    """Return the table that an expression gives; None where it gives none, or one of which the keys are not known."""
    if depth > DEEPEST:
        return None
    match node:
        case ast.Name(id=name):
            return scope.tables.get(name)
        case ast.Dict(keys=keys, values=values):
            return _united(scope, [_row(scope, key, value, depth + 1) for key, value in zip(keys, values, strict=True)], node)
        case ast.DictComp(key=key, value=value, generators=generators):
            rounds = comprehended(scope, generators, lambda inner: _row(inner, key, value, depth + 1), depth)
            return None if rounds is None else _united(scope, rounds, node)
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return _united(scope, [scope.table(left, depth + 1), scope.table(right, depth + 1)], node)
        case ast.Attribute(value=of, attr="__dict__"):
            return scope.table(of, depth + 1)
        case ast.Attribute() | ast.Subscript():
            found = entry_of(scope, node, depth + 1)
            return found if isinstance(found, Table) else None
        case ast.List(elts=elements) | ast.Tuple(elts=elements) if any(_is_compound(scope, each) for each in elements):
            things = [scope.thing(each, depth + 1) for each in elements if not isinstance(each, ast.Starred)]
            return (
                Table({str(place): each for place, each in enumerate(things)}, True) if len(things) == len(elements) else None
            )
        case ast.Call():
            return _built(scope, node, depth + 1)
    return None


def _is_compound(scope: Scope, node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "dict" or bool(scope.names.places.get(node.func.id))
    return isinstance(node, (ast.Dict, ast.List, ast.Tuple)) or (isinstance(node, ast.Name) and scope.has_parts(node.id))


def _row(scope: Scope, key: ast.expr | None, value: ast.expr, depth: int) -> Table | None:
    """Return the entries that one place of a dictionary gives."""
    if key is None:
        return scope.table(value, depth)
    text = scope.text(key)
    return None if text is None else Table({text: scope.thing(value, depth)})


def _united(scope: Scope, tables: Sequence[Table | None], node: ast.expr) -> Table | None:
    """Return the table of all entries, the last of a key; None where one table is not known."""
    known = [table for table in tables if table is not None and not table.is_list]
    scope.take_steps(sum(len(table.entries) for table in known), node)
    if len(known) < len(tables):
        return None
    return Table({key: thing for table in known for key, thing in table.entries.items()})


def _built(scope: Scope, call: ast.Call, depth: int) -> Table | None:
    """Return the dictionary or the object that a call makes."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "copy" and not call.args:
        return scope.table(call.func.value, depth)
    if (scope.names.dotted(call.func) in SAME_TABLE or name == "vars") and len(call.args) == 1:
        return scope.table(call.args[0], depth)
    places = scope.names.places.get(name) or []
    if (name != "dict" and not places) or any(isinstance(each, ast.Starred) for each in call.args):
        return None
    named = _united(
        scope,
        [
            scope.table(each.value, depth) if each.arg is None else Table({each.arg: scope.thing(each.value, depth)})
            for each in call.keywords
        ],
        call,
    )
    if named is None:
        return None
    if not places:
        return _united(scope, [*(scope.table(each, depth) for each in call.args), named], call)
    empty = Scope(scope.program)
    fields = scope.names.fields.get(name, {})
    defaults: dict[str, Thing] = {key: empty.value(each, depth) for key, each in fields.items()}
    listed: dict[str, Thing] = {key: scope.thing(each, depth) for key, each in zip(places, call.args, strict=False)}
    held = {**dict.fromkeys(places), **defaults, **listed, **named.entries}
    if len(call.args) > len(places):
        return None
    return Table({key: thing for key, thing in held.items() if thing is not None})


def entry_of(scope: Scope, node: ast.Attribute | ast.Subscript, depth: int) -> Thing | None:
    """Return the entry of a table, the field of an object or the word of a list that an expression names."""
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and scope.owner is not None
    ):
        return _attribute(scope, scope.owner, node.attr, depth)
    if isinstance(node, ast.Attribute):
        table = scope.table(node.value, depth)
        return table.entries.get(node.attr) if table is not None and not table.is_list else None
    key = _key(scope, node, depth)
    value = scope.thing(node.value, depth) if key is not None else None
    if key is None or isinstance(value, Table):
        return value.entries.get(key) if isinstance(value, Table) and key is not None else None
    words = value.items[: int(key) + 1] if isinstance(value, Array) and key.isdecimal() and len(key) < 6 else ()
    if not words or len(words) <= int(key) or not all(isinstance(item, Word) for item in words):
        return None
    last = words[-1]
    return Scalar(last.pieces) if isinstance(last, Word) else None


def _key(scope: Scope, node: ast.Subscript, depth: int) -> str | None:
    """Return the key of an entry; of one that is not known, the one that it is supposed to be."""
    if isinstance(node.slice, ast.Slice):
        return None
    key = scope.text(node.slice)
    if key is not None or not isinstance(node.slice, (ast.Name, ast.Attribute)):
        return key
    name = ast.unparse(node.slice)
    if name not in scope.program.keys:
        table = scope.table(node.value, depth)
        keys = () if table is None or table.is_list else tuple(table.entries)
        scope.program.keys[name] = keys if len(keys) <= MOST_KEYS else ()
    return scope.program.chosen.get(name)


def _attribute(scope: Scope, owner: ast.ClassDef, name: str, depth: int) -> Thing | None:
    """Return what an attribute of `self` holds that `__init__` sets, and nothing else; or the default of a field."""
    program = scope.program
    count = scope.names.stored[name]
    if owner.name in scope.names.bases or count > 1 or ANY in scope.names.stored:
        return None
    if count == 0:
        default = scope.names.fields.get(owner.name, {}).get(name)
        return from_outside(Scope(program), default, depth) if default is not None else None
    making = next((node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"), None)
    if making is None or f"{owner.name}.__init__" in program.following:
        return None
    for place, statement in enumerate(making.body):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        is_of_self = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
        if isinstance(statement, ast.Assign) and is_of_self and isinstance(target, ast.Attribute) and target.attr == name:
            program.following.append(f"{owner.name}.__init__")
            given = ast.arguments(**{**vars(making.args), "args": making.args.args[1:]})
            before = ast.FunctionDef(**{**vars(making), "name": owner.name, "args": given, "body": making.body[:place]})
            scope = program.meaning.follow(of_module(program), before)
            scope.owner = owner
            thing = scope.thing(statement.value, depth)
            program.following.pop()
            return thing
    return None
