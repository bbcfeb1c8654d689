"""Syntax nodes of generated code: their places, the constants and names in them, and what to say about unknown ones."""

from __future__ import annotations

import ast
from dataclasses import replace

from tvlint.ir.location import Location
from tvlint.ir.operators import Value
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.pickle.records import Sources
from tvlint.readers.sources.python_syntax import NotConstant, Source, constant, dotted, integer, integers


class NotUnderstood(ReadError):
    """Generated code holds what tvlint gives no meaning: what that makes is unknown, and the rest is read."""


class Fails(ReadError):
    """Generated code holds what ends its run with an error, whatever stands around it."""


class Nodes:
    """The nodes of one file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.origins = Sources(source.path)
        self.unclear = False
        """Whether anything was not understood, which may do more than is seen."""

    def fail(self, node: ast.AST, message: str, help: str = "") -> ReadError:
        return ReadError(message, self.source.at(node), help)

    def stops(self, node: ast.AST, message: str, help: str = "") -> ReadError:
        """Return that the run ends with an error at `node`, or that it may where something before it is not understood."""
        return stops(self.unclear, message, self.source.at(node), help)

    def not_understood(self, node: ast.AST, message: str) -> NotUnderstood:
        self.unclear = True
        return NotUnderstood(message, self.source.at(node))

    def unknown(self, node: ast.AST, where: str) -> NotUnderstood:
        what = type(node).__name__ if not isinstance(node, ast.Expr) else type(node.value).__name__
        kind = "an expression" if isinstance(node, ast.expr) else "a statement"
        return self.not_understood(node, f"{where} holds {kind} (`{what}`) that generated code is not known to have")

    def at(self, node: ast.AST) -> Location:
        """Return the place of `node`; its origin is the model's line in the comment above."""
        place = self.source.at(node)
        above = self.source.lines[place.line - 2].strip() if place.line is not None and place.line >= 2 else ""
        if not above.startswith("# File "):
            return place
        origin = self.origins.of(above[2:], lambda: "")
        return replace(place, origin=origin) if origin.line is not None else place

    def undecorated(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        """Raise ReadError where something else than what is written may stand under the name."""
        if node.decorator_list:
            raise self.fail(node.decorator_list[0], f"`{node.name}` is decorated, and tvlint does not know what that changes")
        if isinstance(node, ast.ClassDef) and node.keywords:
            raise self.fail(node, f"`{node.name}` has a metaclass, and tvlint does not know what that changes")

    def deleted(self, targets: list[ast.expr], node: ast.AST) -> tuple[str, ...]:
        """Return the names that `del` is given."""
        if not all(isinstance(target, ast.Name) for target in targets):
            raise self.fail(node, "something else than a name is deleted")
        return tuple(target.id for target in targets if isinstance(target, ast.Name))

    def integer(self, node: ast.AST, what: str) -> int:
        try:
            value = integer(node)
        except NotConstant as error:
            raise self.fail(node, f"{what} is {error}") from None
        if value < 0:
            raise self.fail(node, f"{what} is {value}")
        return value

    def integers(self, node: ast.AST, what: str) -> tuple[int, ...]:
        try:
            return integers(node)
        except NotConstant as error:
            raise self.fail(node, f"{what} is {error}") from None

    def constant(self, node: ast.AST, what: str) -> Value:
        try:
            return constant(node)
        except NotConstant as error:
            raise self.fail(node, f"{what} is {error}") from None

    def argument(self, call: ast.Call, position: int, name: str) -> ast.expr:
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value
        if position < len(call.args):
            return call.args[position]
        raise self.fail(call, f"`{dotted(call.func)}` lacks its argument `{name}`")

    def targets(self, node: ast.expr) -> tuple[str, ...]:
        found = self.names(node, node)
        if any(isinstance(part, ast.Attribute) for part in ast.walk(node)):
            raise self.not_understood(node, "a value is kept in an attribute, which may be read under that name later")
        return found

    def items(self, node: ast.expr | None) -> tuple[ast.expr, ...]:
        """Return the expressions in a tuple or list, and in those inside of it, in order."""
        match node:
            case None:
                return ()
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(one for item in items for one in self.items(item))
            case _:
                return (node,)

    def names(self, node: ast.expr | None, place: ast.AST) -> tuple[str, ...]:
        match node:
            case None:
                return ()
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(name for item in items for name in self.names(item, place))
            case ast.Name(id=name):
                return (name,)
            case ast.Attribute() if dotted(node).startswith("self."):
                return (dotted(node).removeprefix("self."),)
            case _:
                raise self.not_understood(place, "an expression stands where a name is expected")

    def returned(self, node: ast.expr | None, place: ast.AST) -> tuple[str, ...]:
        """Return the names in what a step returns, also in dictionaries and lists, in order."""
        match node:
            case ast.Dict(keys=keys, values=values) if all(isinstance(key, ast.Constant) for key in keys):
                return tuple(name for value in values for name in self.returned(value, place))
            case ast.Tuple(elts=values) | ast.List(elts=values):
                return tuple(name for value in values for name in self.returned(value, place))
            case ast.Constant():
                return ()
            case _:
                return self.names(node, place)

    def operands(self, value: ast.expr, node: ast.AST) -> tuple[str, ...]:
        """Return the names in a tuple; an empty one for `None`."""
        if not isinstance(value, ast.Tuple):
            raise self.fail(node, "values are not given as a tuple")
        found = []
        for item in value.elts:
            if isinstance(item, ast.Constant) and item.value is None:
                found.append("")
            elif isinstance(item, ast.Name):
                found.append(item.id)
            else:
                raise self.fail(node, "a value of the schedule is an expression")
        return tuple(found)

    def given(self, values: list[ast.expr], node: ast.AST) -> tuple[str, ...]:
        """Return the names among the arguments of a call."""
        if not all(isinstance(value, ast.Name) for value in values):
            raise self.fail(node, "an argument is an expression")
        return tuple(value.id for value in values if isinstance(value, ast.Name))

    def starred(self, args: list[ast.expr], node: ast.AST) -> tuple[str, ...]:
        match args:
            case [ast.Starred(value=value)]:
                return self.operands(value, node)
            case []:
                return ()
            case _:
                raise self.fail(node, "arguments are not given as `*(...)`")


def stops(unclear: bool, message: str, place: Location, help: str = "") -> ReadError:
    """Return that the run ends with an error at a place; what is `unclear` about the file may keep it from that."""
    return (ReadError if unclear else Fails)(message, place, help)


def arguments_of(function: ast.FunctionDef) -> tuple[str, ...] | None:
    """Return the names of plain positional arguments; None where there are others, and where annotations are evaluated."""
    given = function.args
    if given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs or given.defaults:
        return None
    names = tuple(argument.arg for argument in given.args)
    annotated = function.returns is not None or any(argument.annotation is not None for argument in given.args)
    return None if annotated or len(set(names)) != len(names) else names
