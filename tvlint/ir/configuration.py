"""A parallel configuration: settings by their canonical names, each with the place where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass, field

SettingValue: TypeAlias = "int | float | str | bool | None | tuple[SettingValue, ...]"

_AT_LINE = Pattern(r" at line \d+")

IN_DEVELOPMENT = "-tree"
"""What ends the version of a source tree: it names the release that comes next, and may lack what came with that late."""
AFTER_RELEASE = "-later"
"""What ends the version of a dated snapshot: it names the release before, and may hold what came with the next one early."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that cannot be read statically, and why (`depends on $1`, `set under a condition`).

    `given` says that the setting surely has a value other than none, whatever it is (`--save $DIR`).
    """

    reason: str
    given: bool = False

    @property
    def cause(self) -> str:
        """The reason without the line that it stands at, which an edit above it moves."""
        return _AT_LINE.sub("", self.reason)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as the file gives it.

    `name` is canonical: the option's destination in snake_case (`tensor_model_parallel_size`). `written` is how the file
    spells it (`--tensor-model-parallel-size`). `location` is the value's place; `name_location` the option's.
    """

    name: str
    value: SettingValue | Unknown
    written: str
    location: Location
    name_location: Location


@dataclass(frozen=True, slots=True)
class Change:
    """Another value of the setting `name`; None: the file does not give it any more."""

    name: str
    value: int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Configuration:
    """One set of settings that configures one run.

    `settings` holds what the file sets explicitly (the last one wins); an absent name has its framework's default.
    `complete` is False where settings may exist that the reader did not see (`$@`, an unresolved `source`, a partial YAML):
    an absent name is then unknown, not default. `environment` are variables exported to the run. `format` is
    `megatron-shell`, `megatron-yaml`, ...; `section` tells several configurations of one file apart.
    """

    path: str
    format: str
    framework: str
    settings: Mapping[str, Setting]
    environment: Mapping[str, Setting] = field(default_factory=dict)
    section: str = ""
    complete: bool = True
    location: Location | None = None
    version: str = ""
    overridden: tuple[Setting, ...] = ()
    """Settings that a later one of the same name replaced, in order."""
    command_complete: bool = False
    """Whether one that is not complete lacks only what no command gives: what its framework keeps is at its default."""
    elsewhere: str = ""
    """What may give more settings of a command that is not complete, in words of the file (`$EXTRA_ARGS`)."""
    model: str = ""
    """The weights that the run starts from, where the file names them: their path or repository (`Qwen/Qwen3-8B`)."""
    gpus: str = ""
    """The generation of the GPUs that it runs on (`hopper`), where that is known."""
    beside: Mapping[str, Setting] = field(default_factory=dict)
    """What else the file sets, by its path, with its first configuration: a comparison shows it, and no rule reads it."""
    supposed: bool = False
    """Whether `elsewhere` is supposed to give nothing but what launches usually do."""
    condition: str = ""
    """When the file configures this run, where it does not always (`with `MODEL=13b``)."""
    cases: tuple[Configuration, ...] = ()
    """What it is under each condition that the file names and that leaves it another."""
