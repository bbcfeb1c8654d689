"""The command-line options of Megatron-LM, as its parser defines them: flags, destination, type, arity, choices, default."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from tvlint.ir.configuration import AFTER_RELEASE, IN_DEVELOPMENT, SettingValue
from tvlint.ir.values import dataclass


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no default that the parser alone could say."""


MISSING: Final = Missing()
FIRST_COMPARED = "0.12"
RETIRED: Final = frozenset({"batch_size", "model_parallel_size", "warmup", "checkpoint_activations"})
"""Settings of the first releases, whose options the parser takes now only to stop: what they took then, it does not say."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the parser.

    `dest` is the canonical setting name. `kind` is `store` (takes values), `true`, `false` (sets `dest` to that) or
    `boolean` (`--x` sets it, `--no-x` clears it). `type` is `int`, `float`, `str`, `bool` or `other` (a converter of its
    own), `arity` is None (exactly one value), a number, `+` or `*`.
    """

    dest: str
    flags: tuple[str, ...]
    kind: str = "store"
    type: str = "str"
    arity: int | str | None = None
    choices: tuple[str | int | float, ...] = ()
    default: int | float | None = None
    """The number that stands for the option in the source of another program, where it is left out; None where none does."""


def option(flag: str) -> Option | None:
    """Return the option that `flag` names, spelled with hyphens or underscores; None where Megatron has no such option."""
    known = next((name for name in (flag, hyphens(flag)) if is_flag(name)), None)
    return _option(known) if known is not None else None


def is_flag(flag: str) -> bool:
    """Return whether the parser has `flag` as it is spelled."""
    return flag in _by_flag()


def is_option(flag: str) -> bool:
    """Return whether `flag` names an option, spelled with hyphens or underscores."""
    by_flag = _by_flag()
    return flag in by_flag or hyphens(flag) in by_flag


def is_of_fork(flag: str) -> bool:
    """Return whether a fork of Megatron, a framework around it or a release before the present one has `flag`."""
    return flag in _of_forks()


def option_of(name: str) -> Option | None:
    """Return the first option that sets `name`; None where no option does."""
    found = _by_destination().get(name)
    return _option(_flags(found)[0]) if found is not None else None


def default(name: str) -> SettingValue | Missing:
    """Return the parser's default of the setting `name`; MISSING where it has none or `name` is no setting."""
    table = _table()
    if name in table["defaults"]:
        return _frozen(table["defaults"][name])
    return None if name in table["none"] else MISSING


def since(name: str) -> str:
    """Return the release of Megatron core that the setting `name` came with; empty where it is older than 0.5."""
    return _since().get(name, "")


def takes_the_same(name: str, version: str) -> bool:
    """Return whether the option of the setting `name` takes in release `version` (`0.16`) what it takes now; False where
    unknown.

    Compared are the parsers of 0.12 and of every release since.
    """
    numbers = _numbers(version.removesuffix(IN_DEVELOPMENT).removesuffix(AFTER_RELEASE))
    return numbers >= _numbers(FIRST_COMPARED) and all(
        _numbers(each_name) <= numbers for each_name in (since(name), _changed().get(name, ""))
    )


def has_changed(name: str) -> bool:
    """Return whether the option of the setting `name` takes something else in some release since 0.12 than it takes now."""
    return name in _changed()


def later_names(flag: str) -> tuple[str, ...]:
    """Return what `flag` was renamed to in later commits of Megatron-LM, one name after the other."""
    found: list[str] = []
    while later := _renamed().get(hyphens(found[-1] if found else flag)):
        found.append(later)
    return tuple(found)


def names() -> tuple[str, ...]:
    """Return the canonical names of all settings, in the parser's order."""
    return tuple(_by_destination())


def flags() -> tuple[str, ...]:
    """Every flag of the parser, in its order."""
    return tuple(_by_flag())


def fork_flags() -> frozenset[str]:
    """Every flag of a fork of Megatron, of a framework around it or of a release before the present one."""
    return _of_forks()


def hyphens(flag: str) -> str:
    """`flag` as the parser spells most: two hyphens, then words joined with hyphens."""
    return flag[:2] + flag[2:].replace("_", "-")


@cache
def _option(flag: str) -> Option:
    """Return the option that has exactly this flag."""
    entry = _by_flag()[flag]
    return Option(
        entry["dest"],
        _flags(entry),
        entry.get("kind", "store"),
        entry.get("type", "str"),
        entry.get("nargs"),
        tuple(entry.get("choices", ())),
    )


def _flags(entry: dict[str, Any]) -> tuple[str, ...]:
    return tuple(entry["flags"]) if "flags" in entry else ("--" + entry["dest"].replace("_", "-"),)


def _frozen(value: Any) -> SettingValue:
    return tuple(_frozen(each) for each in value) if isinstance(value, list) else value


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_bytes())
    table["none"] = frozenset(table["none"])
    return table


@cache
def _by_flag() -> dict[str, dict[str, Any]]:
    return {flag: entry for entry in _table()["options"] for flag in _flags(entry)}


@cache
def _of_forks() -> frozenset[str]:
    forks = json.loads(Path(__file__).with_name("forks.json").read_bytes())["forks"]
    return frozenset(f"--{name}" for fork in forks for line in fork["options"] for name in line.split())


@cache
def _by_destination() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for entry in _table()["options"]:
        found.setdefault(entry["dest"], entry)
    return found


@cache
def _since() -> dict[str, str]:
    return {name: version for version, names in _table()["since"].items() for name in names}


@cache
def _renamed() -> dict[str, str]:
    return {name: later for names in _table()["renamed"].values() for name, later in names.items()}


@cache
def _changed() -> dict[str, str]:
    return {name: version for version, names in _table()["changed"].items() for name in names}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
