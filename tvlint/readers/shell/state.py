"""The state of evaluating a script: variables, functions, arguments, and the work left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass, field
from tvlint.readers.shell.bindings import Bindings
from tvlint.readers.shell.syntax import Syntax
from tvlint.readers.shell.values import (
    Array,
    Gap,
    Item,
    Scalar,
    Source,
    Span,
    Text,
    Value,
    Word,
    bounded,
    may_be,
    span_of_bytes,
)

if TYPE_CHECKING:
    from tree_sitter import Node

EXPANSIONS = frozenset({"expansion", "simple_expansion", "command_substitution", "arithmetic_expansion"})
EXPANSION_OPENER = Pattern(rb"[$`]")
DEEPEST = 60
"""Syntax nested deeper than this is not followed."""


class TooMuchWork(Exception):
    """The script needs more steps than a launch script ever does."""


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command as the script would run it, with the variables exported to it."""

    words: tuple[Item, ...]
    span: Span
    exported: dict[str, Value]
    variables: Mapping[str, Value] | None = None
    """The final variables of the script that runs it, where that is another than the one evaluated."""


@dataclass(slots=True)
class Trace:
    """The trace of evaluating a script so far, and the steps left."""

    steps: int
    follow: Callable[[State, Node], None]
    """Follows one statement; the statements that hold others come back through it."""
    syntax: Syntax
    commands: list[Command] = field(default_factory=list)
    unresolved_sources: list[Span] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    sourced: int = 0


@dataclass(frozen=True, slots=True)
class Moment:
    """A point of a script: how much had been set by then."""

    variables: int
    exported: int


@dataclass(slots=True)
class State:
    """The shell's state at one point of the script; `variables` lacks what the file never sets."""

    source: Source
    trace: Trace
    variables: Bindings[Value] = field(default_factory=Bindings)
    exported: Bindings[bool] = field(default_factory=Bindings)
    functions: Bindings[tuple[Source, Node]] = field(default_factory=Bindings)
    arguments: tuple[Item, ...] | None = None
    calls: int = 0
    sources: int = 0
    depth: int = 0
    ended: bool = False
    supposed: Mapping[str, str] = field(default_factory=dict)
    """Variables, and arguments by their numbers, with the text that they are supposed to hold where the file leaves it open."""

    def fork(self) -> State:
        """Return a copy that a branch may change."""
        return State(
            self.source,
            self.trace,
            self.variables.fork(),
            self.exported.fork(),
            self.functions.fork(),
            self.arguments,
            self.calls,
            self.sources,
            self.depth,
            self.ended,
            self.supposed,
        )

    def now(self) -> Moment:
        """Return this point of the script, to tell later what was set since."""
        return Moment(self.variables.now(), self.exported.now())

    def follow(self, node: Node) -> None:
        """Follow one statement in this state, unless the script is left already."""
        if not self.ended:
            self.trace.follow(self, node)

    def follow_all(self, nodes: Sequence[Node]) -> None:
        """Follow statements one after another."""
        for node in nodes:
            self.follow(node)

    def span(self, node: Node) -> Span:
        return span_of_bytes(self.source, self.start(node), node.end_byte)

    def start(self, node: Node) -> int:
        """Return where `node` begins; the grammar counts blanks before an expansion inside quotes as part of the expansion."""
        if node.type not in EXPANSIONS:
            return node.start_byte
        opener = EXPANSION_OPENER.search(self.source.data, node.start_byte, node.end_byte)
        return opener.start() if opener else node.start_byte

    def span_of(self, start: int, end: int) -> Span:
        return span_of_bytes(self.source, start, end)

    def text(self, node: Node) -> str:
        return self.source.data[self.start(node) : node.end_byte].decode()

    def spend(self, steps: int = 1) -> None:
        """Count work; a script that needs too much is given up."""
        self.trace.steps -= steps
        if self.trace.steps < 0:
            raise TooMuchWork

    def assign(self, name: str, value: Value, span: Span) -> None:
        self.spend(len(value.pieces if isinstance(value, Scalar) else value.items) // 16)
        text = self.supposed.get(name)
        if text is not None and isinstance(value, Scalar) and may_be(value.pieces, text):
            value = Scalar((Text(text, span, exact=False),))
        self.variables[name] = bounded(value, span)

    def words_of_arguments(self, span: Span) -> tuple[Item, ...]:
        if self.arguments is None:
            return (Gap("the script's arguments are not known", span),)
        return self.arguments


def directory_of(source: Source) -> str:
    """Return the directory of the script, as a path that `source` can resolve."""
    return str(PurePath(source.path).parent)


def as_scalar(value: Value) -> Scalar | None:
    """Return what `$NAME` gives: the text, or the first element of an array where that is known."""
    if isinstance(value, Scalar):
        return value
    return _first(value)


def _first(value: Array) -> Scalar | None:
    if not value.items:
        return Scalar(())
    first = value.items[0]
    return Scalar(first.pieces) if isinstance(first, Word) else None
