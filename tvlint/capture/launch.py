"""The command that starts a training program: how many ranks, which script or module, which arguments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace


class LaunchError(Exception):
    """The command cannot be captured; the message says why, `help` what to do."""

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message)
        self.help = help


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that a model is captured with (0: as small as shows its parallelism)."""

    layers: int = 0
    hidden: int = 0
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """A program and the ranks that run it; `module` says that `program` is a module's name and no file.

    `declared` are the ranks that the command starts where fewer are captured, and `reduced` the options of Megatron that say
    parallel sizes of which its arguments have smaller ones, each with what the command says. The single-device reference of a
    launch is `single_of` as many ranks.
    """

    ranks: int
    program: str
    arguments: tuple[str, ...]
    module: bool = False
    environment: tuple[tuple[str, str], ...] = field(default=())
    sizes: Sizes = Sizes()
    declared: int = 0
    reduced: tuple[tuple[str, int], ...] = ()
    single_of: int = 0

    @property
    def single(self) -> Launch:
        """The launch of the same program on one process."""
        return replace(self, ranks=1, single_of=self.ranks)

    @property
    def words(self) -> tuple[str, ...]:
        """The program and its arguments as they were given."""
        return (*(("-m",) if self.module else ()), self.program, *self.arguments)


_PYTHON_FLAGS = frozenset({"-u", "-B", "-O", "-I", "-E", "-s"})
_PYTHON_OPTIONS = frozenset({"-W", "-X"})
_RUN_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch"})
_RUN_FLAGS = frozenset({"standalone", "no-python", "no_python", "run-path", "run_path"})


def parse_launch(words: Sequence[str]) -> Launch:
    """Parse `torchrun ...`, `python ...` or `python -m torch.distributed.run ...`, with variables in front of it.

    Raises LaunchError for any other command.
    """
    environment, rest = assignments(words)
    if not rest:
        raise LaunchError("no command to capture is given", "write it behind `--`: `tvlint capture -- python train.py`")
    name = os.path.basename(rest[0])
    if name == "torchrun":
        return _torchrun(rest[1:], environment)
    if name == "python" or (name.startswith("python3") and name[7:].replace(".", "").isdigit() | (name == "python3")):
        return _python(rest[1:], environment)
    if name.endswith(".py"):
        return Launch(1, rest[0], tuple(rest[1:]), environment=environment)
    raise LaunchError(
        f"`{rest[0]}` is no launcher that tvlint knows",
        "give the command as `torchrun --nproc-per-node N script.py ARGS` or `python script.py ARGS`",
    )


def assignments(words: Sequence[str]) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """Return the variables that a command sets in front of it, and the rest of the command."""
    rest, found = list(words), list[tuple[str, str]]()
    if rest[:1] == ["env"]:
        rest.pop(0)
    while rest and "=" in rest[0] and rest[0].partition("=")[0].isidentifier():
        name, _, value = rest.pop(0).partition("=")
        found.append((name, value))
    return tuple(found), rest


def _python(words: Sequence[str], environment: tuple[tuple[str, str], ...]) -> Launch:
    rest = list(words)
    while rest and rest[0] in _PYTHON_FLAGS | _PYTHON_OPTIONS:
        del rest[: 2 if rest[0] in _PYTHON_OPTIONS else 1]
    if not rest or rest[0] == "-c":
        raise LaunchError("`python` without a script", "capture a script: `tvlint capture -- python train.py`")
    if rest[0] == "-m" and len(rest) > 1:
        if rest[1] in _RUN_MODULES:
            return _torchrun(rest[2:], environment)
        return Launch(1, rest[1], tuple(rest[2:]), module=True, environment=environment)
    if rest[0].startswith("-"):
        raise LaunchError(f"`python {rest[0]}` is not understood", "leave out the option")
    return Launch(1, rest[0], tuple(rest[1:]), environment=environment)


def _torchrun(words: Sequence[str], environment: tuple[tuple[str, str], ...]) -> Launch:
    rest, given, module = list(words), dict[str, str](), False
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word in ("-m", "--module"):
            module = True
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if not equals and name not in _RUN_FLAGS:
            value = rest.pop(0) if rest else ""
        given[name.replace("_", "-")] = value
    if not rest:
        raise LaunchError("`torchrun` without a script", "name it behind the options of torchrun")
    ranks = _count(given, "nproc-per-node") * _count(given, "nnodes")
    return Launch(ranks, rest[0], tuple(rest[1:]), module, environment)


def _count(given: dict[str, str], name: str) -> int:
    value = given.get(name, "1").rpartition(":")[2]
    count = number_in(value)
    if not count:
        raise LaunchError(f"`--{name} {value[:80]}` is no number of processes", f"write `--{name}` with a number")
    return count


def number_in(text: str) -> int:
    """Return the count that a text is; 0 where it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
