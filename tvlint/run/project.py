"""The project file: `tvlint.toml`, or `[tool.tvlint]` of `pyproject.toml`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvlint.findings import Problem, Severity
from tvlint.ir.location import Location
from tvlint.run.suggest import did_you_mean
from tvlint.run.toml_places import KeyPath, Places

if TYPE_CHECKING:
    from tvlint.ops.declared import Declared

MAXIMAL_SIZE = 1 << 20
"""Bytes of the largest project file that is read."""


@dataclass(frozen=True, slots=True)
class ProofPair:
    """One `[[proof]]`: parallel plans to prove against their reference, paths relative to the project's folder.

    Without a reference they are folders of generated code, each with its own.
    """

    reference: str
    parallel: tuple[str, ...]
    assume: frozenset[str]
    location: Location


@dataclass(frozen=True, slots=True)
class Project:
    """What a project says about itself; everything has the default of a project that says nothing.

    `names` are the rule names that the file uses, each with its place; `severity` maps a rule to its severity here.
    """

    folder: Path
    path: str = ""
    paths: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    severity: Mapping[str, Severity] = field(default_factory=dict)
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fail_on: Severity = Severity.ERROR
    world_size: int | None = None
    world_size_location: Location | None = None
    activation_budget: int | None = None
    """Micro-batches of activations that a rank of a pipeline schedule may hold at a time."""
    framework: str = ""
    framework_location: Location | None = None
    version: str = ""
    proofs: tuple[ProofPair, ...] = ()
    operators: tuple[Declared, ...] = ()
    """The operators that the project declares, in order."""
    names: tuple[tuple[str, Location], ...] = ()


class ProjectError(Exception):
    """The project file is wrong; carries every problem that was found in it."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__(problems[0].message)
        self.problems = problems


def find(start: Path) -> Path | None:
    """The nearest project file at or above `start`; the top of a git repository ends the search."""
    for folder in (start, *start.parents):
        for name in ("tvlint.toml", ".tvlint.toml"):
            if os.path.isfile(folder / name):
                return folder / name
        if _mentions_tvlint(folder / "pyproject.toml"):
            return folder / "pyproject.toml"
        if os.path.exists(folder / ".git"):
            return None
    return None


def _mentions_tvlint(path: Path) -> bool:
    try:
        content = path.read_bytes() if os.path.isfile(path) and path.stat().st_size <= MAXIMAL_SIZE else b""
    except OSError:
        return False
    return re.search(rb"(?m)^\s*(\[\s*)?tool\s*\.\s*tvlint\b", content) is not None


def load(path: Path, shown: str) -> Project:
    """The project that the file describes; raises `ProjectError` with all its problems, each at its line."""
    try:
        if path.stat().st_size > MAXIMAL_SIZE:
            raise _failed(shown, f"the project file is larger than {MAXIMAL_SIZE:,} bytes")
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise _failed(shown, "the project file is not UTF-8 text") from None
    except OSError as error:
        raise _failed(shown, f"the project file cannot be read: {error.strerror}") from None
    document = _parsed(shown, text)
    prefix: KeyPath = ()
    if path.name == "pyproject.toml":
        prefix = ("tool", "tvlint")
        tool = document.get("tool", {})
        document = tool.get("tvlint", {}) if isinstance(tool, dict) else {}
    reading = _Reading(Places(shown, text), prefix)
    if isinstance(document, dict):
        values = reading.table(document, (), _KEYS)
    else:
        values = {}
        reading.wrong(reading.places.key(prefix), "`tool.tvlint` is no table")
    if reading.problems:
        raise ProjectError(tuple(reading.problems))
    values["proofs"] = values.pop("proof", ())
    values["operators"] = values.pop("operator", ())
    for key in ("world-size", "framework"):
        name = key.replace("-", "_")
        if name in values:
            values[f"{name}_location"] = reading.places.key((*prefix, key))
    return Project(path.parent, shown, names=tuple(reading.names), **values)


def _failed(shown: str, message: str, line: int | None = None, column: int | None = None) -> ProjectError:
    return ProjectError((Problem(message, Location(shown, line, column)),))


def _parsed(shown: str, text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document: dict[str, Any] = tomllib.loads(text)
        return document
    except tomllib.TOMLDecodeError as error:
        message, _, at = str(error).partition(" (at ")
        place = re.match(r"line (\d+), column (\d+)", at)
        line, column = (int(place[1]), int(place[2])) if place else (text.count("\n") + 1, None)
        raise _failed(shown, f"not TOML: {message[:1].lower()}{message[1:]}", line, column) from None
    except RecursionError:
        raise _failed(shown, "not TOML: nested too deeply") from None


class _Reading:
    """The problems and rule names that come up while the tables are read."""

    def __init__(self, places: Places, prefix: KeyPath) -> None:
        self.places = places
        self.prefix = prefix
        self.problems: list[Problem] = []
        self.names: list[tuple[str, Location]] = []

    def wrong(self, location: Location, message: str, help: str = "") -> None:
        self.problems.append(Problem(message, location, help))

    def table(self, table: dict[str, Any], path: KeyPath, keys: Mapping[str, _Key]) -> dict[str, Any]:
        """The values of a table by field name; an unknown key or a value of the wrong type is a problem."""
        values: dict[str, Any] = {}
        for key, value in table.items():
            here = (*path, key)
            if key not in keys:
                self.wrong(self.places.key((*self.prefix, *here)), f"unknown key `{key}`", did_you_mean(key, keys))
                continue
            found = keys[key](self, here, value)
            if found is not None:
                values[key.replace("-", "_")] = found
        return values

    def expected(self, path: KeyPath, what: str, value: Any) -> None:
        shown = repr(value) if isinstance(value, str | int | float) else f"a {type(value).__name__}"
        self.wrong(self.places.key((*self.prefix, *path)), f"`{path[-1]}` must be {what}, not {shown[:80]}")


_Key = Callable[[_Reading, KeyPath, Any], Any]


def _string(reading: _Reading, path: KeyPath, value: Any) -> str | None:
    if isinstance(value, str) and value:
        return value
    reading.expected(path, "a string", value)
    return None


def _version(reading: _Reading, path: KeyPath, value: Any) -> str | None:
    if isinstance(value, str) and re.match(r"\D{0,20}\d", value):
        return value
    reading.expected(path, "a string with a number, such as `0.12`", value)
    return None


def _strings(reading: _Reading, path: KeyPath, value: Any) -> tuple[str, ...] | None:
    if isinstance(value, list) and all(isinstance(item, str) and item for item in value):
        return tuple(value)
    reading.expected(path, "a list of strings", value)
    return None


def _rules(reading: _Reading, path: KeyPath, value: Any) -> tuple[str, ...] | None:
    names = _strings(reading, path, value)
    for name in names or ():
        reading.names.append((name, reading.places.text((*reading.prefix, *path), name)))
    return names


def _positive(reading: _Reading, path: KeyPath, value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    reading.expected(path, "a positive number", value)
    return None


def _severity(reading: _Reading, path: KeyPath, value: Any) -> Severity | None:
    if value in [severity.value for severity in Severity]:
        return Severity(value)
    reading.expected(path, "`error`, `warning` or `note`", value)
    return None


def _severities(reading: _Reading, path: KeyPath, value: Any) -> dict[str, Severity] | None:
    if not isinstance(value, dict):
        reading.expected(path, "a table of rule and severity", value)
        return None
    found = {}
    for name, severity in value.items():
        reading.names.append((name, reading.places.key((*reading.prefix, *path, name))))
        found[name] = _severity(reading, (*path, name), severity)
    return {name: severity for name, severity in found.items() if severity is not None}


def _per_file_ignores(reading: _Reading, path: KeyPath, value: Any) -> dict[str, tuple[str, ...]] | None:
    if not isinstance(value, dict):
        reading.expected(path, "a table of file pattern and list of rules", value)
        return None
    return {pattern: _rules(reading, (*path, pattern), rules) or () for pattern, rules in value.items()}


def _proofs(reading: _Reading, path: KeyPath, value: Any) -> tuple[ProofPair, ...] | None:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        reading.expected(path, "tables, each written as `[[proof]]`", value)
        return None
    pairs = []
    for index, item in enumerate(value):
        here = (*path, index)
        location = reading.places.key((*reading.prefix, *here))
        values = reading.table(item, here, {"reference": _string, "parallel": _strings, "assume": _strings})
        if "parallel" not in item:
            reading.wrong(location, "a `[[proof]]` needs `parallel`")
        if "parallel" in values and ("reference" in values or "reference" not in item):
            assume = frozenset(values.get("assume", ()))
            pairs.append(ProofPair(values.get("reference", ""), values["parallel"], assume, location))
    return tuple(pairs)


def _operators(reading: _Reading, path: KeyPath, value: Any) -> tuple[Declared, ...] | None:
    from tvlint.run.project_operators import declared_operators

    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        reading.expected(path, "tables, each written as `[[operator]]`", value)
        return None
    keys: Mapping[str, _Key] = {
        "name": _string,
        "annotation": _string,
        "arguments": _strings,
        "linear-in": _operands,
        "same-as": _string,
    }
    tables = [reading.table(item, (*path, index), keys) for index, item in enumerate(value)]

    def place(index: int, key: str) -> Location:
        return reading.places.key((*reading.prefix, *path, index, *((key,) if key else ())))

    return declared_operators(value, tables, place, reading.wrong)


def _operands(reading: _Reading, path: KeyPath, value: Any) -> tuple[tuple[int | str, ...], ...] | None:
    found = []
    for entry in value if isinstance(value, list) else [None]:
        places = entry if isinstance(entry, list) and entry else [entry]
        if not all(isinstance(place, str) or (type(place) is int and place >= 0) for place in places):
            reading.expected(path, "a list of operands by name, or by position from 0, such as `[0, [1, 2]]`", value)
            return None
        found.append(tuple(places))
    return tuple(found)


_KEYS: Mapping[str, _Key] = {
    "paths": _strings,
    "exclude": _strings,
    "select": _rules,
    "ignore": _rules,
    "severity": _severities,
    "per-file-ignores": _per_file_ignores,
    "fail-on": _severity,
    "world-size": _positive,
    "activation-budget": _positive,
    "framework": _string,
    "version": _version,
    "proof": _proofs,
    "operator": _operators,
}
