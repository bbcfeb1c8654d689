"""Parse the launcher of a command: the program that it starts and the number of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvlint.ir.configuration import Setting, Unknown
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass
from tvlint.readers.megatron.arguments import flag_of
from tvlint.readers.megatron.detect_framework import SWIFT
from tvlint.readers.shell.values import (
    Fork,
    Gap,
    Hole,
    Item,
    Piece,
    Scalar,
    Span,
    Text,
    Value,
    Word,
    after,
    from_outside,
    known_text,
    location_of,
    span_of,
    unknown_reason,
)

TORCH = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch"})
LAUNCHERS = TORCH | {"srun", "mpirun", "mpiexec", "deepspeed", "accelerate", "ft_launcher"}
PER_NODE = frozenset({"--nproc-per-node", "--num-gpus"})
NODES = frozenset({"--nnodes", "--num-nodes"})
OF_ALL_MACHINES = frozenset({"--num-processes"})
INCLUDED = frozenset({"--include", "--i"})
SLOTS = Pattern(r"[\w.-]+:(\d+(?:,\d+)*)")
BEFORE_PROGRAM = frozenset({"-m", "--module", "--no-python", "--no_python"})
"""After which a program stands that is no file of Python."""
VISIBLE = frozenset({"gpu", "auto"})
"""What `torchrun` is given to run a process on each GPU that it sees."""
DEVICES = Pattern(r"\d+(?:,\d+)*")


@dataclass(frozen=True, slots=True)
class Launch:
    """A command cut into what comes before the program (`launcher`), the program's name and its `arguments`.

    `program` is its last part; `path` is all of it that is known, and `name` the word of a file.
    """

    launcher: tuple[Item, ...]
    program: str
    arguments: tuple[Item, ...]
    gaps: bool
    path: str = ""
    name: Word | None = None


def split_launch(items: Sequence[Item]) -> Launch:
    """Cut a command at its program: the first that is a file or module of Python, or that a launcher is to start as it is; else
    before its first option.
    """
    if items and _text(items[0]) in SWIFT:
        return Launch(tuple(items[:2]), _text(items[0]), tuple(items[2:]), any(isinstance(item, Gap) for item in items[:2]))
    for place, item in enumerate(items):
        text = _tail(item)
        if text.endswith(".py") and not text.startswith("-"):
            word = item if isinstance(item, Word) else None
            return Launch(tuple(items[:place]), text.rpartition("/")[2], tuple(items[place + 1 :]), False, text, word)
        following = _text(items[place + 1]) if place + 1 < len(items) else "-"
        if text in BEFORE_PROGRAM and following not in TORCH and not following.startswith("-"):
            return Launch(tuple(items[:place]), following, tuple(items[place + 2 :]), False, following)
    launched = _start(items)
    place = launched
    while place < len(items) and not flag_of(items[place]) and not isinstance(items[place], Fork):
        place += 1
    gaps = sum(isinstance(item, Gap) for item in items[launched:place])
    arguments = items if launched == 0 and place == len(items) else items[min(launched, place) :]
    allowed = 1 if launched == 0 else 2
    return Launch(tuple(items), _text(items[0]) if items else "", tuple(_without_gaps(arguments, place, items)), gaps > allowed)


def _start(items: Sequence[Item]) -> int:
    """Return the place after the launcher's own name; 0 where the command has none."""
    return next((place + 1 for place, item in enumerate(items) if _text(item).rpartition("/")[2] in LAUNCHERS), 0)


def _without_gaps(arguments: Sequence[Item], place: int, items: Sequence[Item]) -> list[Item]:
    skipped = place - (len(items) - len(arguments))
    return [item for at, item in enumerate(arguments) if at >= skipped or not isinstance(item, Gap)]


def _tail(item: Item) -> str:
    """Return the word's text; of one that begins with a folder that is not known, the rest.

    A `?` stands for what is not known of a path from the root: it leads out of the checkout as one that is known does.
    """
    if not isinstance(item, Word) or not item.pieces:
        return ""
    text = known_text(item.pieces)
    if text is not None:
        return text
    first = item.pieces[0]
    open_at = max(place for place, piece in enumerate(item.pieces) if not isinstance(piece, Text))
    rest = known_text(item.pieces[open_at + 1 :]) or ""
    if not rest.startswith("/"):
        return ""
    return f"{first.text}?{rest}" if isinstance(first, Text) and first.text.startswith("/") else rest


def _text(item: Item) -> str:
    return known_text(item.pieces) or "" if isinstance(item, Word) else ""


def world_size(launch: Launch, variables: Mapping[str, Value], exported: Mapping[str, Value], command: Span) -> Setting:
    """Return the number of ranks as a setting `world_size`: known only where the file itself fixes every factor."""
    if launch.program in SWIFT:
        return _swift(exported, command)
    words = [_text(item).rpartition("/")[2] for item in launch.launcher]
    if "accelerate" in words and (total := option_value(launch.launcher, OF_ALL_MACHINES)) is not None:
        return _counted(total, command)
    if "deepspeed" in words and (listed := option_value(launch.launcher, INCLUDED)) is not None:
        return _slots(listed)
    if TORCH & set(words) or "deepspeed" in words or "ft_launcher" in words:
        return _torch(launch, exported, command)
    for name in ("mpirun", "mpiexec"):
        if name in words:
            return _counted(_value_after(launch.launcher, ("-np", "-n")), command)
    if "srun" in words:
        return _srun(launch, variables, command)
    return _setting(Unknown("the command does not say how many processes run"), command, command)


def _slots(listed: tuple[Piece, ...]) -> Setting:
    """Return the ranks of `host:0,1@other:0,1`; a host without a list has as many as it has GPUs."""
    text, span = known_text(listed), span_of(listed)
    found = [SLOTS.fullmatch(host) for host in (text or "").split("@")]
    if text is None or from_outside(listed) or not all(found):
        return _setting(Unknown("the GPUs of a host are not listed"), span, span)
    return _setting(sum(match[1].count(",") + 1 for match in found if match is not None), span, span)


def _torch(launch: Launch, exported: Mapping[str, Value], command: Span) -> Setting:
    per_node = option_value(launch.launcher, PER_NODE)
    if per_node is not None and known_text(per_node) in VISIBLE:
        visible = _variable(exported, "CUDA_VISIBLE_DEVICES")
        text = known_text(visible) if visible is not None and not from_outside(visible) else None
        if visible is not None and text is not None and DEVICES.fullmatch(text):
            per_node = (Text(str(text.count(",") + 1), span_of(visible), exact=False),)
    nodes = option_value(launch.launcher, NODES)
    gaps = any(not isinstance(item, Word) for item in launch.launcher)
    if gaps and (per_node is None or nodes is None):
        return _setting(Unknown("words of the launcher are unknown"), command, command)
    if per_node is None:
        return _setting(Unknown("the launcher does not say how many processes run on a node"), command, command)
    return _product([per_node] if nodes is None else [per_node, nodes])


def begins_with_file(arguments: Sequence[Item]) -> bool:
    """Return whether a command of ms-swift takes settings from a file, the first word after what it is to do."""
    first = arguments[0] if arguments else None
    return first is not None and (not isinstance(first, Word) or _text(first).endswith((".yaml", ".yml", ".json")))


def _swift(exported: Mapping[str, Value], command: Span) -> Setting:
    """ms-swift starts as many processes as the environment of the command says, on one node unless that says otherwise."""
    per_node, nodes = (exported.get(name) for name in ("NPROC_PER_NODE", "NNODES"))
    if not isinstance(per_node, Scalar) or not per_node.pieces:
        return _setting(Unknown("the environment does not say how many processes run on a node"), command, command)
    if nodes is None:
        return _product([per_node.pieces])
    if not isinstance(nodes, Scalar) or not nodes.pieces:
        return _setting(Unknown("the number of nodes is not known"), command, command)
    return _product([per_node.pieces, nodes.pieces])


def _srun(launch: Launch, variables: Mapping[str, Value], command: Span) -> Setting:
    total = _value_after(launch.launcher, ("-n", "--ntasks")) or _variable(variables, "SLURM_NTASKS")
    nodes = _value_after(launch.launcher, ("-N", "--nodes")) or _variable(variables, "SLURM_NNODES")
    per_node = _value_after(launch.launcher, ("--ntasks-per-node",)) or _variable(variables, "SLURM_NTASKS_PER_NODE")
    if nodes is not None and per_node is not None:
        return _product([per_node, nodes])
    return _counted(total, command)


def _variable(variables: Mapping[str, Value], name: str) -> tuple[Piece, ...] | None:
    value = variables.get(name)
    return value.pieces if isinstance(value, Scalar) else None


def _counted(pieces: tuple[Piece, ...] | None, command: Span) -> Setting:
    if pieces is None:
        return _setting(Unknown("the command does not say how many processes run"), command, command)
    return _product([pieces])


def _product(factors: list[tuple[Piece, ...]]) -> Setting:
    span = span_of(factors[0])
    total = 1
    for pieces in factors:
        text = known_text(pieces)
        if text is None:
            return _setting(Unknown(unknown_reason(pieces)), span, span)
        if from_outside(pieces):
            return _setting(Unknown("the environment may set the number of processes"), span, span)
        if not text.isascii() or not text.isdigit() or not 0 < len(text) < 8 or int(text) == 0:
            return _setting(Unknown(f"`{text[:40]}` is not a number of processes"), span, span)
        total *= int(text)
    return _setting(total, span, span)


def _setting(value: int | Unknown, span: Span, name_span: Span) -> Setting:
    return Setting("world_size", value, "world size", location_of(span), location_of(name_span))


def option_value(items: Sequence[Item], names: frozenset[str]) -> tuple[Piece, ...] | None:
    """Return the value of the last option among `names`."""
    found: tuple[Piece, ...] | None = None
    for place, item in enumerate(items):
        flag = flag_of(item) or _text(item)
        if ("--" + flag.lstrip("-").replace("_", "-")) not in names or not isinstance(item, Word):
            continue
        rest = after(item.pieces, len(flag))
        if rest:
            found = after(rest, 1)
        elif place + 1 < len(items):
            following = items[place + 1]
            found = following.pieces if isinstance(following, Word) else _hole(following)
    return found or None


def _hole(item: Gap | Fork) -> tuple[Piece, ...]:
    return (Hole(item.reason, item.span),)


def _value_after(items: Sequence[Item], names: tuple[str, ...]) -> tuple[Piece, ...] | None:
    for place, item in enumerate(items):
        if not isinstance(item, Word):
            continue
        text = _text(item)
        for name in names:
            if text == name and place + 1 < len(items):
                following = items[place + 1]
                return following.pieces if isinstance(following, Word) else _hole(following)
            if name.startswith("--") and text.startswith(name + "="):
                return after(item.pieces, len(name) + 1)
            if not name.startswith("--") and text.startswith(name) and text[len(name) :].isdigit():
                return after(item.pieces, len(name))
    return None
