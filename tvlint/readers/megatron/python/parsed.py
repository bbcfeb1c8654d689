"""The variables and parameters of a Python program that hold what a parser of options read."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence


def parsed_names(
    nodes: Sequence[ast.AST], functions: Mapping[str, ast.FunctionDef], calls: Mapping[str, list[ast.Call]]
) -> set[str]:
    """Return the names that get what `parse_args` gives: assigned, returned by a function, or passed by all its calls."""
    found = set[str]()
    reading = set[str]()
    assigned = [pair for node in nodes for pair in _assigned(node)]
    while True:
        more = {target for target, value in assigned if _reads(value, found, reading)}
        more |= {
            place.arg
            for name, function in functions.items()
            for number, place in enumerate(function.args.args)
            if (given := _given(calls.get(name, ()), number, place.arg)) and all(_reads(each, found, reading) for each in given)
        }
        readers = {name for name, function in functions.items() if _gives_parsed(function, found, reading)}
        if more <= found and readers <= reading:
            return found
        found |= more
        reading |= readers


def _assigned(node: ast.AST) -> Iterable[tuple[str, ast.expr]]:
    """Yield each name that a statement sets to a value; of `known, rest = VALUE` the first."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
    for target in targets if value is not None else ():
        first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
        if isinstance(first, ast.Name) and value is not None:
            yield first.id, value


def _reads(value: ast.expr | None, found: set[str], reading: set[str]) -> bool:
    """Return whether a value is what a parser reads of the words that the program is started with."""
    match value:
        case ast.Call(func=ast.Attribute(attr="parse_args" | "parse_known_args"), args=given, keywords=[]):
            return not any(isinstance(each, ast.List) for each in given)
        case ast.Call(func=ast.Name(id=name)):
            return name in reading
        case ast.Name(id=name):
            return name in found
        case ast.Tuple(elts=[first, *_]) | ast.Subscript(value=first, slice=ast.Constant(value=0)):
            return _reads(first, found, reading)
    return False


def _gives_parsed(function: ast.FunctionDef, found: set[str], reading: set[str]) -> bool:
    results = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    return bool(results) and all(_reads(each, found, reading) for each in results)


def _given(calls: Sequence[ast.Call], number: int, name: str) -> list[ast.expr | None]:
    """Return what each call passes for a parameter; None of one that does not say it."""
    return [
        call.args[number]
        if number < len(call.args)
        else next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
        for call in calls
    ]
