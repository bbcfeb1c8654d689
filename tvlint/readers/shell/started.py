"""Scripts of the checkout that a script starts in a shell of their own, with what it gives them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass, replace
from tvlint.readers.document import ReadError
from tvlint.readers.languages import SHELL_NAMES
from tvlint.readers.shell.bindings import Bindings
from tvlint.readers.shell.sources import find_sourced, sbatch_variables
from tvlint.readers.shell.state import State
from tvlint.readers.shell.values import (
    Item,
    Piece,
    Scalar,
    Source,
    Span,
    Text,
    Value,
    Word,
    known_text,
    leading_text,
    source_of,
)

SHELLS = frozenset({"bash", "sh", "zsh", "ksh", "dash"})
BEFORE = frozenset({"nohup", "time", "exec", "command", "env"})
"""Commands that start what stands behind them, in the environment that they have themselves."""
STARTERS = SHELLS | BEFORE | {"sbatch"}
GIVEN = Pattern(r"([A-Za-z_]\w*)=")
EXPORT = "--export="
OF_JOB = "SLURM_"
HARMLESS = Pattern(
    r"--(?:job-name|output|error|time|partition|account|dependency|qos|export|comment|wait|parsable)\b.*|-[Jotepad].*"
)
"""Options of `sbatch` that leave the number of nodes and ranks as the script has it."""
FIRST_ARGUMENT = Pattern(r"\$(?:\{)?[1-9@*]")


@dataclass(frozen=True, slots=True)
class Start:
    """A script that a command starts: its path as written, its arguments, and what the command itself sets for it."""

    target: str
    arguments: tuple[Item, ...]
    given: dict[str, Value]
    keeps_environment: bool = True
    keeps_ranks: bool = True


def follow_started(state: State, scope: State, words: Sequence[Item]) -> None:
    """Follow the script that the words start, where they give it something; `scope` has what is set for this command only.

    A script that is given nothing is judged by itself, and one that is given options of its own may be a launcher.
    """
    start = _start(words)
    if start is None or any(leading_text(item.pieces).startswith("--") for item in start.arguments if isinstance(item, Word)):
        return
    given = {name: scope.variables[name] for name in scope.exported if start.keeps_environment and name in scope.variables}
    given.update(start.given)
    found = find_sourced(state, start.target) if given or start.arguments else None
    if found is None:
        return
    inner = source_of(*found)
    if not _asks(inner, given, start.arguments):
        return
    ranks = sbatch_variables(inner) if start.keeps_ranks else {}
    around = {name: value for name, value in state.variables.items() if name.startswith(OF_JOB)}
    child = State(
        inner,
        state.trace,
        Bindings({**around, **ranks, **given}),
        Bindings(dict.fromkeys(given, True)),
        arguments=start.arguments,
        sources=state.sources + 1,
        depth=state.depth,
        supposed=state.supposed,
    )
    child.spend(len(given))
    before = len(state.trace.commands)
    with suppress(ReadError):  # it is judged by itself too, and refused there
        child.follow_all(state.trace.syntax.tree(inner).root_node.children)
    variables = dict(child.variables)
    for at, command in enumerate(state.trace.commands[before:], before):
        if command.variables is None:
            state.trace.commands[at] = replace(command, variables=variables)


def _asks(inner: Source, given: dict[str, Value], arguments: tuple[Item, ...]) -> bool:
    """Return whether the script names something that it is given."""
    text = inner.text
    return any(f"${name}" in text or f"${{{name}" in text for name in given) or (
        bool(arguments) and FIRST_ARGUMENT.search(text) is not None
    )


def _start(words: Sequence[Item]) -> Start | None:
    command = known_text(words[0].pieces) if words and isinstance(words[0], Word) else None
    if command is None or not (command in STARTERS or ("/" in command and command.endswith(SHELL_NAMES))):
        return None
    texts = [known_text(item.pieces) if isinstance(item, Word) else None for item in words]
    given: dict[str, Value] = {}
    at = 0
    while at < len(words) and texts[at] in BEFORE:
        is_env = texts[at] == "env"
        at += 1
        while is_env and at < len(words) and (pair := _given(words[at])) is not None:
            given[pair[0]] = pair[1]
            at += 1
    if at >= len(words):
        return None
    first = texts[at] or ""
    if first == "sbatch":
        return _job(words[at + 1 :], texts[at + 1 :], given)
    if first in SHELLS:
        at += 1
        while at < len(words) and (texts[at] or "").startswith(("-", "+")) and "c" not in (texts[at] or ""):
            at += 1
    elif "/" not in first:
        return None
    target = texts[at] if at < len(words) else None
    return Start(target, tuple(words[at + 1 :]), given) if target and target.endswith(SHELL_NAMES) else None


def _job(words: Sequence[Item], texts: Sequence[str | None], given: dict[str, Value]) -> Start | None:
    """Return the script that `sbatch` starts as a job; other options than those known may change its nodes."""
    at = next((at for at, text in enumerate(texts) if (text or "-")[0] != "-" and (text or "").endswith(SHELL_NAMES)), None)
    if at is None:
        return None
    keeps_environment = keeps_ranks = True
    for item in words[:at]:
        option = leading_text(item.pieces) if isinstance(item, Word) else ""
        keeps_ranks &= bool(option) and (option[0] != "-" or HARMLESS.fullmatch(option) is not None)
        if isinstance(item, Word) and option.startswith(EXPORT):
            keeps_environment = not option.startswith((EXPORT + "NONE", EXPORT + "NIL"))
            given = {**given, **dict(_exports(item))}
    return Start(texts[at] or "", tuple(words[at + 1 :]), given, keeps_environment, keeps_ranks)


def _exports(item: Word) -> Iterator[tuple[str, Value]]:
    """Yield the variables of `--export=ALL,A=1,B=$B`."""
    parts: list[list[Piece]] = [[]]
    for piece in item.pieces:
        if not isinstance(piece, Text):
            parts[-1].append(piece)
            continue
        start = len(EXPORT) if piece is item.pieces[0] else 0
        first, *others = [*_between_commas(piece.text, start)]
        parts[-1].append(_part(piece, *first))
        parts.extend([_part(piece, *other)] for other in others)
    for part in parts:
        if (pair := _given(Word(tuple(part)))) is not None:
            yield pair


def _given(item: Item) -> tuple[str, Value] | None:
    """Return the variable and value of `NAME=value`; None where the word is none."""
    if not isinstance(item, Word) or not item.pieces or not isinstance(first := item.pieces[0], Text):
        return None
    match = GIVEN.match(first.text)
    if match is None:
        return None
    return match[1], Scalar((_part(first, match.end(), len(first.text)), *item.pieces[1:]))


def _between_commas(text: str, start: int) -> Iterator[tuple[int, int]]:
    for part in text[start:].split(","):
        yield start, start + len(part)
        start += len(part) + 1


def _part(piece: Text, start: int, end: int) -> Text:
    """Return a part of known text, with its place where the text stands as it is."""
    place = Span(piece.span.source, piece.span.start + start, piece.span.start + end) if piece.exact else piece.span
    return Text(piece.text[start:end], place, piece.exact, piece.outside)
