"""The commands that a command is, and those in the strings that it hands to another shell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tvlint.ir.patterns import Pattern
from tvlint.readers.megatron.arguments import pieces_of
from tvlint.readers.shell.evaluate import Evaluation
from tvlint.readers.shell.lexer import commands_in
from tvlint.readers.shell.state import Command, as_scalar
from tvlint.readers.shell.values import Item, Piece, Text, Word, known_text

PRINTS = frozenset({"echo", "printf", "logger", "grep", "sed", "awk", "cat", "log", "info", "tee", "test", "["})
OPTION = Pattern(r" --|[\s]\+{0,2}[A-Za-z_][\w.@-]*\.\w+=")


def name_of(command: Command) -> str | None:
    """Return the command's own name; None where it is not known."""
    return known_text(command.words[0].pieces) if command.words and isinstance(command.words[0], Word) else None


def readings(
    evaluation: Evaluation, command: Command, passes_options: Callable[[Sequence[Item]], bool]
) -> Iterable[tuple[Item, ...]]:
    """Return the words of the command itself where it passes options, else those of the commands in its words."""
    first = name_of(command)
    if first in PRINTS:
        return
    if first != "eval" and passes_options(command.words):
        yield command.words
        return

    variables = evaluation.variables if command.variables is None else command.variables

    def lookup(name: str) -> tuple[Piece, ...] | None:
        scalar = as_scalar(variables[name]) if name in variables else None
        return scalar.pieces if scalar is not None else None

    if first == "eval":
        joined: list[Piece] = []
        for item in command.words[1:]:
            joined.extend(pieces_of(item))
            joined.append(Text(" ", command.span, False))
        yield from commands_in(joined, lookup)
        return
    for item in command.words:
        if isinstance(item, Word) and OPTION.search("".join(piece.text for piece in item.pieces if isinstance(piece, Text))):
            yield from commands_in(item.pieces, lookup)
