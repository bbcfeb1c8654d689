"""Take dictionaries and lists of a data loader apart into the tensors that the code reads.

`data_46['ids']` is the tensor that the statement `_operator.getitem(data_46, 'ids')` reads; it takes the place of the
dictionary wherever that is handed on. Fields are ordered by their path, on every rank and in the traced graph alike.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tvlint.ir.operators import Value
from tvlint.readers.nnscaler.gencode.syntax.expressions import GETITEM, names_in
from tvlint.readers.nnscaler.gencode.syntax.records import Delete, Execute, Load, Method, Opaque, RankFile, Statement
from tvlint.readers.sources.python_syntax import NotConstant, constant, dotted

Path: TypeAlias = tuple[Value, ...]
"""The keys that lead to a field; empty for the thing itself."""
Field: TypeAlias = tuple[int, Path]
"""The position in what a loader gives, and the keys that lead from there."""
_DEEPEST = 8


def field_name(name: str, path: Path) -> str:
    """Return the name of a field: `data_46['ids'][0]`."""
    return name + "".join(f"[{key!r}]" for key in path)


def in_order(paths: set[Path]) -> tuple[Path, ...]:
    """Paths in the order in which their fields stand for the whole."""
    return tuple(sorted(paths, key=lambda path: (len(path) > 0, tuple(map(repr, path)))))


def item(call: ast.Call) -> tuple[str, Value] | None:
    """Return the name and the key of `_operator.getitem(name, key)`; None for any other call."""
    if dotted(call.func) != GETITEM or len(call.args) != 2 or call.keywords or not isinstance(call.args[0], ast.Name):
        return None
    try:
        key = constant(call.args[1])
    except NotConstant:
        return None
    return (call.args[0].id, key) if isinstance(key, (str, int)) else None


def take_apart(files: Sequence[RankFile]) -> None:
    """Put fields in the place of the objects that loaders give, in all files of a replica."""
    wanted: dict[tuple[str, int], set[Path]] = {}
    for file in files:
        given = _given(file)
        for action in file.actions:
            if isinstance(action, Execute):
                for argument, name in zip(file.methods[action.method].arguments, action.inputs, strict=True):
                    if name in given:
                        wanted.setdefault(given[name], set()).update(_paths(file.methods[action.method], argument))
    apart = {place: paths for place, paths in wanted.items() if paths - {()} and () not in paths}
    if apart:
        for file in files:
            _replace(file, apart)


def _given(file: RankFile) -> dict[str, tuple[str, int]]:
    """Return what loaders give, by name: the loader and the position."""
    loads = [action for action in file.actions if isinstance(action, Load)]
    return {name: (load.loader, position) for load in loads for position, name in enumerate(load.outputs)}


def _paths(method: Method, argument: str) -> set[Path]:
    """Return the fields of an argument that a method reads; the empty path for a use of the whole."""
    known: dict[str, Path] = {argument: ()}
    found: set[Path] = set()
    taken: set[Path] = set()
    for entry in method.body:
        if isinstance(entry, Delete):
            continue
        part = item(entry.call) if isinstance(entry, Statement) else None
        if part is not None and part[0] in known and len(entry.outputs) == 1 and len(known[part[0]]) < _DEEPEST:
            path = (*known[part[0]], part[1])
            taken.add(known[part[0]])
            known[entry.outputs[0]] = path
            found.add(path)
        else:
            used = set(entry.inputs if isinstance(entry, Opaque) else names_in(entry.call)[0])
            found.update(path for name, path in known.items() if name in used and not path)
    found.update(() for name in method.returns if known.get(name) == ())
    return found - (taken - {()})


def _replace(file: RankFile, apart: Mapping[tuple[str, int], set[Path]]) -> None:
    given = {name: place for name, place in _given(file).items() if place in apart}
    fields: dict[str, dict[str, tuple[Path, ...]]] = {}
    for action in file.actions:
        if isinstance(action, Execute):
            method = file.methods[action.method]
            for argument, name in zip(method.arguments, action.inputs, strict=True):
                if name in given:
                    fields.setdefault(method.name, {})[argument] = in_order(_paths(method, argument))
    for index, action in enumerate(file.actions):
        if isinstance(action, Load):
            paths = [
                (position, path)
                for position in range(len(action.outputs))
                for path in in_order(apart.get((action.loader, position), {()}))
            ]
            outputs = tuple(field_name(action.outputs[position], path) for position, path in paths)
            file.actions[index] = replace(action, outputs=outputs, fields=tuple(paths))
        elif isinstance(action, Execute):
            method = file.methods[action.method]
            elements = fields.get(method.name, {})
            inputs = zip(method.arguments, action.inputs, strict=True)
            file.actions[index] = replace(
                action, inputs=tuple(field_name(name, path) for one, name in inputs for path in elements.get(one, ((),)))
            )
        elif isinstance(action, Delete):
            gone = (
                field_name(name, path)
                for name in action.names
                for path in (in_order(apart[given[name]]) if name in given else ((),))
            )
            file.actions[index] = Delete(tuple(gone))
    for name, elements in fields.items():
        method = file.methods[name]
        arguments = tuple(field_name(one, path) for one in method.arguments for path in elements.get(one, ((),)))
        file.methods[name] = replace(method, arguments=arguments)


def read_fields(body: Sequence[Statement | Delete | Opaque], arguments: Sequence[str]) -> dict[int, tuple[str, str]]:
    """Return the statements of a method, by position, that only read a field of an argument: what they make and which field."""
    known: dict[str, str] = {}
    found: dict[int, tuple[str, str]] = {}
    for index, entry in enumerate(body):
        part = item(entry.call) if isinstance(entry, Statement) else None
        if part is None or not isinstance(entry, Statement) or len(entry.outputs) != 1:
            continue
        path = field_name(known.get(part[0], part[0]), (part[1],))
        if any(argument == path or argument.startswith(f"{path}[") for argument in arguments):
            known[entry.outputs[0]] = path
            found[index] = entry.outputs[0], path
    return found
