"""Constants that methods of generated code hand to one another, such as `self.training`: they are no tensors of the plan."""

from __future__ import annotations

import ast
from dataclasses import replace

from tvlint.plurals import counted
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.gencode.syntax.method_body import read_method
from tvlint.readers.nnscaler.gencode.syntax.nodes import Nodes, arguments_of
from tvlint.readers.nnscaler.gencode.syntax.records import Action, Delete, Execute, Load, RankFile, Rename, RunBackward


def without_constants(nodes: Nodes, found: RankFile) -> None:
    """Put constants that a method returns in the place of the names that later methods of the rank are given them under.

    Nothing sends a constant to another rank: a name that no method of the rank returns stays, and has no value there.
    """
    known: dict[str, ast.expr] = {}
    given: dict[str, dict[str, ast.expr]] = {}
    for index, action in enumerate(found.actions):
        if isinstance(action, Delete):
            found.actions[index] = Delete(tuple(name for name in action.names if name not in known))
        elif isinstance(action, Execute):
            found.actions[index] = _execute(nodes, found, action, known, given)
        else:
            for name in _bound(action):
                known.pop(name, None)
    found.returned = tuple(name for name in found.returned if name not in known)


def _execute(
    nodes: Nodes, found: RankFile, action: Execute, known: dict[str, ast.expr], given: dict[str, dict[str, ast.expr]]
) -> Execute:
    name = action.method
    arguments = arguments_of(found.functions[name]) or ()
    constants = {argument: known[value] for argument, value in zip(arguments[1:], action.inputs, strict=True) if value in known}
    if given.setdefault(name, constants).keys() != constants.keys() or any(
        ast.dump(constants[one]) != ast.dump(given[name][one]) for one in constants
    ):
        raise ReadError(f"`{name}` is given a constant in one run and another value in a later one", action.source)
    if constants:
        found.methods[name] = read_method(nodes, found.functions[name], constants)
    method = found.methods[name]
    if method.constants and len(method.returns) != len(action.outputs):
        said = f"`{name}` returns {counted(len(method.returns), 'value')} and {len(action.outputs)} are taken"
        raise ReadError(said, action.source)
    taken = tuple(value for value in action.inputs if value not in known)
    for outer in action.outputs:
        known.pop(outer, None)
    given_back = zip(method.returns, action.outputs, strict=False)
    known.update((outer, method.constants[inner]) for inner, outer in given_back if inner in method.constants)
    return replace(action, inputs=taken, outputs=tuple(outer for outer in action.outputs if outer not in known))


def _bound(action: Action) -> tuple[str, ...]:
    """Return the names that an action gives values."""
    if isinstance(action, Load):
        return action.outputs
    if isinstance(action, RunBackward):
        return action.results
    return (action.new,) if isinstance(action, Rename) else ()
