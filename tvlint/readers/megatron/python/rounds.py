"""The rounds of loops and comprehensions: what each gives its variable, where that is known."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TypeVar

from tvlint.readers.megatron.python.assignments import assign
from tvlint.readers.megatron.python.conditions import decide
from tvlint.readers.megatron.python.scope import LEAVES, Scope, Table, Thing
from tvlint.readers.megatron.python.texts import number
from tvlint.readers.shell.values import Array, Scalar, Word, known_text

LONGEST = 60
MOST_ROUNDS = 24
"""A loop over more values is followed once, with its variable open."""
T = TypeVar("T")


def rounds_of(scope: Scope, statement: ast.stmt) -> list[Thing] | None:
    """Return what a loop gives its variable, round by round; None where it is not known, or the loop may end before."""
    if not isinstance(statement, ast.For) or any(isinstance(node, LEAVES) for node in ast.walk(statement)):
        return None
    return rounds_over(scope, statement.iter)


def rounds_over(scope: Scope, node: ast.expr, depth: int = 0) -> list[Thing] | None:
    """Return the things that a loop over an expression gives; None where they are not known, or too many."""
    found = _elements(scope, node, depth)
    if found is None or len(found) > min(MOST_ROUNDS, scope.program.repeated):
        return None
    scope.program.repeated -= len(found)
    return found


def _elements(scope: Scope, node: ast.expr, depth: int) -> list[Thing] | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        table = scope.table(node.func.value, depth + 1)
        if table is not None and not table.is_list:
            keys = [scope.plain(key, node) for key in table.entries]
            values = list(table.entries.values())
            pairs: list[Thing] = [Table({"0": key, "1": each}, True) for key, each in zip(keys, values, strict=True)]
            found: dict[str, list[Thing]] = {"items": pairs, "keys": [*keys], "values": values}
            return found.get(node.func.attr)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return _built_in_elements(scope, node, node.func.id, depth)
    table = scope.table(node, depth + 1)
    if table is not None:
        return list(table.entries.values()) if table.is_list else [scope.plain(key, node) for key in table.entries]
    if not isinstance(node, (ast.List, ast.Tuple, ast.Name, ast.Attribute, ast.Subscript, ast.ListComp, ast.GeneratorExp)):
        return None
    value = scope.value(node, depth + 1)
    words = [item for item in value.items if isinstance(item, Word)] if isinstance(value, Array) else None
    return (
        None
        if words is None or not isinstance(value, Array) or len(words) < len(value.items)
        else [Scalar(w.pieces) for w in words]
    )


def _built_in_elements(scope: Scope, call: ast.Call, name: str, depth: int) -> list[Thing] | None:
    if name == "range" and 1 <= len(call.args) <= 3:
        bounds = [number(value.pieces) if isinstance(value := scope.value(each, depth), Scalar) else None for each in call.args]
        known = [bound for bound in bounds if bound is not None]
        numbers = range(*known) if len(known) == len(bounds) and 0 not in known[2:] else range(MOST_ROUNDS + 1)
        return [scope.plain(str(each), call) for each in numbers] if len(numbers) <= MOST_ROUNDS else None
    given = [_elements(scope, each, depth + 1) for each in call.args]
    lists = [each for each in given if each is not None]
    if len(lists) < len(given) or not lists:
        return None
    if name == "enumerate" and len(lists) == 1:
        return [Table({"0": scope.plain(str(place), call), "1": each}, True) for place, each in enumerate(lists[0])]
    if name == "zip":
        return [Table({str(place): each for place, each in enumerate(row)}, True) for row in zip(*lists, strict=False)]
    return lists[0] if name in ("list", "tuple", "iter") and len(lists) == 1 else None


def comprehended(
    scope: Scope, generators: Sequence[ast.comprehension], made: Callable[[Scope], T], depth: int
) -> list[T] | None:
    """Return what each round of a comprehension makes; None where the rounds are not known."""
    if not generators:
        return [made(scope)]
    first = generators[0]
    rounds = None if first.is_async else rounds_over(scope, first.iter, depth + 1)
    if rounds is None:
        return None
    found: list[T] = []
    for thing in rounds:
        inner = Scope(scope.program, dict(scope.variables), dict(scope.tables), owner=scope.owner)
        assign(inner, first.target, thing, True)
        chosen = [decide(inner, test) for test in first.ifs]
        if None in chosen:
            return None
        if all(chosen):
            more = comprehended(inner, generators[1:], made, depth)
            if more is None:
                return None
            found += more
    return found


def shown(scope: Scope, target: ast.expr) -> str:
    """Return the first name of a target with the text that it or its first entry holds; empty where none is known."""
    names = [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]
    held: list[tuple[str, Thing | None]] = [(name, scope.variables.get(name)) for name in names]
    held += [
        (f"{name}.{key}", each) for name in names if name in scope.tables for key, each in scope.tables[name].entries.items()
    ]
    for name, thing in held:
        text = known_text(thing.pieces) if isinstance(thing, Scalar) else None
        if text is not None and len(text) <= LONGEST:
            return f"{name}={text}"
    return ""
