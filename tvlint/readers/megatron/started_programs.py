"""The programs that a launch script starts, with all their words: what runs when the script does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvlint.frameworks.megatron import hyphens, option
from tvlint.ir.location import Location
from tvlint.readers.document import ReadError
from tvlint.readers.megatron.arguments import flag_of
from tvlint.readers.megatron.launch_script import is_launch
from tvlint.readers.megatron.launcher import Launch, split_launch, world_size
from tvlint.readers.megatron.nested_commands import readings
from tvlint.readers.shell.evaluate import Evaluation, evaluate
from tvlint.readers.shell.state import Command
from tvlint.readers.shell.values import (
    Item,
    Scalar,
    Span,
    Word,
    known_text,
    location_of,
    source_of,
    span_of,
    unknown_reason,
)

_NOTHING = "0"
"""Stands for a value that nothing reads, be it a number or a path."""


@dataclass(frozen=True, slots=True)
class Started:
    """A program by its path, with its arguments, the ranks that run it (0: not known) and the variables that it is given.

    `left_out` are words of the script that give arguments which are not known.
    """

    program: str
    arguments: tuple[str, ...]
    ranks: int
    environment: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]
    location: Location


def started_by(
    path: str, data: bytes, environment: Mapping[str, str], arguments: Sequence[str] | None, unread: frozenset[str]
) -> tuple[Started, ...]:
    """Return the programs with Megatron's options that a script starts.

    Options in `unread` may have values that are not known. Raises ReadError where another one has.
    """
    evaluation = evaluate(source_of(path, data), environment, arguments)
    if evaluation.gave_up:
        raise ReadError("the script is too complex to be followed", Location(path, 1), "give the command that it starts")
    return tuple(
        _started(evaluation, command, split_launch(words), unread)
        for command in evaluation.commands
        for words in readings(evaluation, command, is_launch)
        if is_launch(words)
    )


def _started(evaluation: Evaluation, command: Command, launch: Launch, unread: frozenset[str]) -> Started:
    words, left_out = list[str](), list[str]()
    name = ""
    for item in launch.arguments:
        name = flag_of(item) or name
        if isinstance(item, Word) and (text := known_text(item.pieces)) is not None:
            words.append(text)
        elif isinstance(item, Word) or (words[-1:] == [name] and _takes_value(name)):
            words.append(_unread(item, name, unread))
        else:
            left_out.append(_written(item.span))
    ranks = world_size(launch, evaluation.variables, command.exported, command.span).value
    exported = {name: known_text(value.pieces) for name, value in command.exported.items() if isinstance(value, Scalar)}
    known = tuple((name, text) for name, text in exported.items() if text is not None)
    count = ranks if isinstance(ranks, int) else 0
    return Started(launch.path or launch.program, tuple(words), count, known, tuple(left_out), location_of(command.span))


def _takes_value(name: str) -> bool:
    known = option(name)
    return known is not None and known.kind == "store"


def _unread(item: Item, name: str, unread: frozenset[str]) -> str:
    """Return a word in place of one that is not known, where nothing reads it."""
    if hyphens(name) in unread:
        return name if flag_of(item) else _NOTHING
    span = span_of(item.pieces) if isinstance(item, Word) else item.span
    why = unknown_reason(item.pieces) if isinstance(item, Word) else item.reason
    text = f"the value of `{name}` is not known: {why}" if name else f"`{_written(span)}` is not known: {why}"
    help = "give it in front: `-- NAME=VALUE bash SCRIPT`, or give the command that the script starts"
    raise ReadError(text, location_of(span), help)


def _written(span: Span) -> str:
    return " ".join(span.source.text[span.start : span.end].split())
