"""The variables of a Python program that is followed, and what may still be done to follow it.

Texts and lists are the values of the shell's reader; beside them stand tables: dictionaries, and objects with fields.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from tvlint.ir.location import Location
from tvlint.readers.document import ReadError
from tvlint.readers.megatron.python.names import Names
from tvlint.readers.shell.state import Command
from tvlint.readers.shell.values import Array, Hole, Scalar, Source, Span, Text, Value, Word, known_text

DEEPEST = 40
MOST_WITHIN = 8
"""So many functions are followed into one another."""
MOST_REPEATED = 200
"""So many rounds of loops and calls of functions are followed in one program."""
LOOPS = (ast.For, ast.AsyncFor, ast.While)
LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
NOTHING: Mapping[str, Thing] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Table:
    """A dictionary or an object with fields; or a list of other things than texts, by their numbers."""

    entries: Mapping[str, Thing]
    is_list: bool = False


Thing: TypeAlias = "Value | Table"


@dataclass(frozen=True, slots=True)
class Meaning:
    """How expressions are evaluated, at a depth, and functions followed: what each part of a program asks of the others."""

    value: Callable[[Scope, ast.expr, int], Value]
    """The text or the list that an expression gives."""
    table: Callable[[Scope, ast.expr, int], Table | None]
    """The table that an expression gives; None where it gives none that is known."""
    thing: Callable[[Scope, ast.expr, int], Thing]
    """The table, or else the text or the list."""
    follow: Callable[..., Scope]
    """What the body of a function leaves."""


@dataclass(slots=True)
class Program:
    """A program as it is followed, and what may still be done to follow it."""

    source: Source
    names: Names
    meaning: Meaning
    launching: frozenset[str] = frozenset()
    """The functions that start a command, or call one that does."""
    changed: frozenset[str] = frozenset()
    """The lists and tables of the module that a function may change."""
    variables: dict[str, Value] = field(default_factory=dict)
    """What the variables of the module hold."""
    tables: dict[str, Table] = field(default_factory=dict)
    following: list[str] = field(default_factory=list)
    """The functions that are followed, each called by the one before."""
    called: set[str] = field(default_factory=set)
    """The functions that were followed with what a call gives them."""
    conditions: dict[int, str] = field(default_factory=dict)
    """By the identity of each command, the round or the call in which it is started, in words."""
    supposed: list[ast.stmt] = field(default_factory=list)
    """The branch of a condition that is followed as the one that runs; none where it is empty."""
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By each key that is not known, as the program writes it, those of the table that it names an entry of."""
    chosen: dict[str, str] = field(default_factory=dict)
    """Keys that are not known, as the program writes them, with the entry that each is supposed to name."""
    repeated: int = MOST_REPEATED


@dataclass(slots=True)
class Scope:
    """The variables of a module or function, by what the statements before leave in them."""

    program: Program
    variables: dict[str, Value] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    """The names of lists that have more than one."""
    given: set[str] = field(default_factory=set)
    """The names that hold what a round or a call gives them."""
    condition: str = ""
    owner: ast.ClassDef | None = None
    """The class of which a method is followed."""

    @property
    def source(self) -> Source:
        return self.program.source

    @property
    def names(self) -> Names:
        return self.program.names

    def value(self, node: ast.expr, depth: int = 0) -> Value:
        """Return the text or the list that an expression gives, with holes for what is not known."""
        return self.program.meaning.value(self, node, depth)

    def table(self, node: ast.expr, depth: int) -> Table | None:
        """Return the table that an expression gives; None where it gives none, or one of which the keys are not known."""
        return self.program.meaning.table(self, node, depth)

    def thing(self, node: ast.expr, depth: int = 0) -> Thing:
        """Return what an expression gives: a table where it is one that is known, else a text or a list."""
        return self.program.meaning.thing(self, node, depth)

    def text(self, node: ast.expr) -> str | None:
        """Return the text that an expression gives; None where it is not known."""
        value = self.value(node)
        return known_text(value.pieces) if isinstance(value, Scalar) else None

    def put(self, name: str, thing: Thing) -> None:
        """Let a name hold a thing."""
        if isinstance(thing, Table):
            self.tables[name] = thing
            self.variables.pop(name, None)
        else:
            self.variables[name] = thing
            self.tables.pop(name, None)

    def has_parts(self, name: str) -> bool:
        """Return whether a name holds a list or a table."""
        return name in self.tables or isinstance(self.variables.get(name), Array)

    def named(self, node: ast.Name) -> Value:
        """Return the text or the list that a name holds."""
        return self.variables.get(node.id) or self.hole(node)

    def hole(self, node: ast.expr | ast.stmt | ast.arg | None) -> Scalar:
        """Return a text that is not known."""
        return Scalar((Hole("depends on what the program computes", self.span(node)),))

    def plain(self, text: str, node: ast.expr) -> Scalar:
        """Return a text that does not stand in the program as it is."""
        return Scalar((Text(text, self.span(node), exact=False),))

    def span(self, node: ast.expr | ast.stmt | ast.arg | None) -> Span:
        """Return where a node stands."""
        if node is None:
            return Span(self.source, 0, 0)
        end = _offset(self.source, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        return Span(self.source, _offset(self.source, node.lineno, node.col_offset), end)

    def spend(self, value: Value, node: ast.expr | ast.stmt | None) -> None:
        """Count the parts of a value as steps."""
        self.take_steps(len(value.items if isinstance(value, Array) else value.pieces), node)

    def take_steps(self, count: int, node: ast.expr | ast.stmt | None) -> None:
        """Count steps. Raises ReadError where a program takes too many."""
        self.names.steps -= count
        if self.names.steps < 0:
            line = node.lineno if node is not None else 1
            raise ReadError("the program is too complex to be followed statically", Location(self.source.path, line))


def parts_of(thing: Thing) -> list[Thing | None] | None:
    """Return the parts of a list, None for each that is not known; None of what is no list."""
    if isinstance(thing, Table):
        return list(thing.entries.values()) if thing.is_list else None
    return (
        [Scalar(item.pieces) if isinstance(item, Word) else None for item in thing.items] if isinstance(thing, Array) else None
    )


def _offset(source: Source, line: int, column: int) -> int:
    """Return the offset in code points of a column in bytes."""
    start, end = source.lines.bounds(min(line, len(source.lines)))
    return start + len(source.text[start:end].encode()[:column].decode(errors="ignore"))
