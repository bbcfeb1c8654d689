"""Scripts of the checkout that a script starts in a shell of their own, with what it gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass, field, replace
from tvlint.readers.document import ReadError
from tvlint.readers.languages import SHELL_NAMES
from tvlint.readers.shell.bindings import Bindings
from tvlint.readers.shell.sources import find_sourced, sbatch_variables
from tvlint.readers.shell.state import State, TooMuchWork
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
STARTERS = SHELLS | BEFORE | {"sbatch", "srun"}
CONTAINERS = frozenset({"docker", "podman"})
"""Commands between `srun` and a script that hand on no environment."""
GIVEN = Pattern(r"([A-Za-z_]\w*)=")
EXPORT = "--export"
EXPORTS_OF_FILE = "--export-file"
ALL = "ALL"
OF_JOB = "SLURM_"
RESERVE = 4
"""So much of the work that is left, one part of four, a script that is started leaves to the one that starts it."""
HARMLESS = Pattern(
    r"--(?:job-name|output|error|time|partition|account|dependency|qos|export|comment|wait|parsable)\b.*|-[Jotepad].*"
)
"""Options of `sbatch` that leave the number of nodes and ranks as the script has it."""
NAMED = Pattern(r"\$(?:\{[#!]?)?(?:([A-Za-z_]\w*)|[1-9@*])")
"""A variable that a script names, or an argument of its."""


@dataclass(frozen=True, slots=True)
class Exports:
    """What a job is given, and the names of what is exported that it has too; None where it has all."""

    given: Mapping[str, Value] = field(default_factory=dict)
    kept: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """A script that a command starts: its path as written, its arguments, and what the command itself sets for it.

    `environment` is set beside what is exported already.
    """

    target: str
    arguments: tuple[Item, ...]
    environment: dict[str, Value]
    exports: Exports = field(default_factory=Exports)
    is_job: bool = False
    keeps_ranks: bool = True


def follow_started(state: State, scope: State, words: Sequence[Item]) -> None:
    """Follow the script that the words start, where they give it something; `scope` has what is set for this command only.

    A script that is given nothing is judged by itself, and one that is given options of its own may be a launcher.
    """
    start = _start(words)
    if start is None or any(leading_text(item.pieces).startswith("--") for item in start.arguments if isinstance(item, Word)):
        return
    scope.spend(len(scope.exported))
    exported = {name: scope.variables[name] for name in scope.exported if name in scope.variables}
    environment = {**exported, **start.environment}
    kept = environment if start.exports.kept is None else start.exports.kept
    given = {**{name: value for name, value in environment.items() if name in kept}, **start.exports.given}
    found = find_sourced(state, start.target) if given or start.arguments else None
    if found is None:
        return
    inner = source_of(*found)
    scope.spend(len(inner.text) // 64)
    if not _asks(inner, given, start.arguments):
        return
    around = {name: value for name, value in state.variables.items() if name.startswith(OF_JOB) and not start.is_job}
    ranks = around or (sbatch_variables(inner) if start.keeps_ranks else {})
    child = State(
        inner,
        state.trace,
        Bindings({**ranks, **given}),
        Bindings(dict.fromkeys(given, True)),
        arguments=start.arguments,
        sources=state.sources + 1,
        depth=state.depth,
        supposed=state.supposed,
    )
    before, reserve = len(state.trace.commands), state.trace.steps // RESERVE
    state.trace.steps -= reserve
    with suppress(ReadError, TooMuchWork):  # it is judged by itself too, and refused there
        child.follow_all(state.trace.syntax.tree(inner).root_node.children)
    state.trace.steps = max(state.trace.steps, 0) + reserve
    variables = dict(child.variables)
    for at, command in enumerate(state.trace.commands[before:], before):
        if command.variables is None:
            state.trace.commands[at] = replace(command, variables=variables)


def _asks(inner: Source, given: dict[str, Value], arguments: tuple[Item, ...]) -> bool:
    """Return whether the script names something that it is given."""
    names = (match[1] for match in NAMED.finditer(inner.text))
    return any(bool(arguments) if name is None else name in given for name in names)


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
    if first == "srun":
        before = at
        while at < len(words) and not (
            texts[at] in SHELLS or ("/" in (texts[at] or "") and (texts[at] or "").endswith(SHELL_NAMES))
        ):
            at += 1
        if at == len(words) or any((text or "").startswith(EXPORT) or text in CONTAINERS for text in texts[before:at]):
            return None
        first = texts[at] or ""
    if first in SHELLS:
        at += 1
        while at < len(words) and (texts[at] or "").startswith(("-", "+")) and "c" not in (texts[at] or ""):
            at += 1
    elif "/" not in first:
        return None
    target = texts[at] if at < len(words) else None
    return Start(target, tuple(words[at + 1 :]), given) if target and target.endswith(SHELL_NAMES) else None


def _job(words: Sequence[Item], texts: Sequence[str | None], environment: dict[str, Value]) -> Start | None:
    """Return the script that `sbatch` starts as a job; other options than those known may change its nodes."""
    at = next((at for at, text in enumerate(texts) if (text or "-")[0] != "-" and (text or "").endswith(SHELL_NAMES)), None)
    if at is None:
        return None
    keeps_ranks, exports = True, Exports()
    for place, item in enumerate(words[:at]):
        option = leading_text(item.pieces) if isinstance(item, Word) else ""
        keeps_ranks &= bool(option) and (option[0] != "-" or HARMLESS.fullmatch(option) is not None)
        if not option.startswith(EXPORT):
            continue
        found = _exports(words[place + 1], 0) if option == EXPORT else _exports(item, len(EXPORT) + 1)
        if found is None or option.startswith(EXPORTS_OF_FILE):
            return None
        exports = found
    return Start(texts[at] or "", tuple(words[at + 1 :]), environment, exports, True, keeps_ranks)


def _exports(item: Item, start: int) -> Exports | None:
    """Return what `ALL,A=1,B=$B,C` says; None where that is not known."""
    if not isinstance(item, Word):
        return None
    given: dict[str, Value] = {}
    names = set[str]()
    for part in _between_commas(item, start):
        name = known_text(part.pieces)
        if (pair := _given(part)) is not None:
            given[pair[0]] = pair[1]
        elif name is None:
            return None
        else:
            names.add(name)
    return Exports(given, None if ALL in names else frozenset(names))


def _between_commas(item: Word, start: int) -> Iterator[Word]:
    parts: list[list[Piece]] = [[]]
    for piece in item.pieces:
        if not isinstance(piece, Text):
            parts[-1].append(piece)
            continue
        place = start if piece is item.pieces[0] else 0
        for at, text in enumerate(piece.text[place:].split(",")):
            if at:
                parts.append([])
            parts[-1].append(_part(piece, place, place + len(text)))
            place += len(text) + 1
    yield from (Word(tuple(part)) for part in parts)


def _given(item: Item) -> tuple[str, Value] | None:
    """Return the variable and value of `NAME=value`; None where the word is none."""
    if not isinstance(item, Word) or not item.pieces or not isinstance(first := item.pieces[0], Text):
        return None
    match = GIVEN.match(first.text)
    if match is None:
        return None
    return match[1], Scalar((_part(first, match.end(), len(first.text)), *item.pieces[1:]))


def _part(piece: Text, start: int, end: int) -> Text:
    """Return a part of known text, with its place where the text stands as it is."""
    place = Span(piece.span.source, piece.span.start + start, piece.span.start + end) if piece.exact else piece.span
    return Text(piece.text[start:end], place, piece.exact, piece.outside)
