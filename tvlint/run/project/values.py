"""The values of a project file: each key's type, and what is said where a value has another."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tvlint.findings import Problem, Severity
from tvlint.ir.location import Location
from tvlint.ir.values import dataclass
from tvlint.near_names import did_you_mean
from tvlint.run.process.budget import MOST, NAMES
from tvlint.run.project.toml_places import KeyPath, Places

if TYPE_CHECKING:
    from typing import TypeGuard

    from tvlint.ops.annotations.declared import Declared


@dataclass(frozen=True, slots=True)
class ProofPair:
    """One `[[proof]]`: parallel plans to prove against their reference, paths relative to the project's folder.

    Without a reference they are folders of generated code, each with its own. With a launch it is about the program that the
    command starts; `reference` is then the command of the single-device program, or its capture.
    """

    reference: str
    parallel: tuple[str, ...]
    assume: frozenset[str]
    location: Location
    launch: str = ""


class Reading:
    """The problems and rule names that come up while the tables are read."""

    def __init__(self, places: Places, prefix: KeyPath) -> None:
        self.places = places
        self.prefix = prefix
        self.problems: list[Problem] = []
        self.names: list[tuple[str, Location]] = []

    def wrong(self, location: Location, message: str, help: str = "") -> None:
        self.problems.append(Problem(message, location, help))

    def table(self, table: dict[str, Any], path: KeyPath, keys: Mapping[str, Key]) -> dict[str, Any]:
        """Return the values of a table by field name; an unknown key or a value of the wrong type is a problem."""
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


Key = Callable[[Reading, KeyPath, Any], Any]


def _is_text(value: Any) -> TypeGuard[str]:
    """Return whether a value is a string that may name something: no file has a name with a NUL character."""
    return isinstance(value, str) and bool(value) and not _has_nul(value)


def _has_nul(value: Any) -> bool:
    return isinstance(value, str) and "\0" in value


def _string(reading: Reading, path: KeyPath, value: Any) -> str | None:
    if _is_text(value):
        return value
    reading.expected(path, "a name without a NUL character" if _has_nul(value) else "a string", value)
    return None


def _version(reading: Reading, path: KeyPath, value: Any) -> str | None:
    if isinstance(value, str) and re.match(r"\D{0,20}\d", value):
        return value
    reading.expected(path, "a string with a number, such as `0.12`", value)
    return None


def _strings(reading: Reading, path: KeyPath, value: Any) -> tuple[str, ...] | None:
    if isinstance(value, list) and all(map(_is_text, value)):
        return tuple(value)
    odd = next(filter(_has_nul, value), None) if isinstance(value, list) else None
    reading.expected(path, "a list of strings" if odd is None else "a list of names without NUL characters", odd or value)
    return None


def _rules(reading: Reading, path: KeyPath, value: Any) -> tuple[str, ...] | None:
    names = _strings(reading, path, value)
    for name in names or ():
        reading.names.append((name, reading.places.text((*reading.prefix, *path), name)))
    return names


def _positive(reading: Reading, path: KeyPath, value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    reading.expected(path, "a positive number", value)
    return None


def _severity(reading: Reading, path: KeyPath, value: Any) -> Severity | None:
    if value in [severity.value for severity in Severity]:
        return Severity(value)
    reading.expected(path, "`error`, `warning` or `note`", value)
    return None


def _severities(reading: Reading, path: KeyPath, value: Any) -> dict[str, Severity] | None:
    if not isinstance(value, dict):
        reading.expected(path, "a table of rule and severity", value)
        return None
    found = {}
    for name, severity in value.items():
        reading.names.append((name, reading.places.key((*reading.prefix, *path, name))))
        found[name] = _severity(reading, (*path, name), severity)
    return {name: severity for name, severity in found.items() if severity is not None}


def _per_file_ignores(reading: Reading, path: KeyPath, value: Any) -> dict[str, tuple[str, ...]] | None:
    if not isinstance(value, dict):
        reading.expected(path, "a table of file pattern and list of rules", value)
        return None
    return {pattern: _rules(reading, (*path, pattern), rules) or () for pattern, rules in value.items()}


def _proofs(reading: Reading, path: KeyPath, value: Any) -> tuple[ProofPair, ...] | None:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        reading.expected(path, "tables, each written as `[[proof]]`", value)
        return None
    pairs = []
    for index, item in enumerate(value):
        here = (*path, index)
        location = reading.places.key((*reading.prefix, *here))
        values = reading.table(item, here, _PROOF)
        if ("parallel" in item) == ("launch" in item):
            reading.wrong(location, "a `[[proof]]` needs `parallel`, or `launch`, and not both")
        elif ("parallel" in values or "launch" in values) and ("reference" in values or "reference" not in item):
            proof = (values.get("reference", ""), values.get("parallel", ()), frozenset(values.get("assume", ())), location)
            pairs.append(ProofPair(*proof, values.get("launch", "")))
    return tuple(pairs)


_PROOF: Mapping[str, Key] = {"reference": _string, "parallel": _strings, "launch": _string, "assume": _strings}


def _profiles(reading: Reading, path: KeyPath, value: Any) -> tuple[dict[str, Any], ...] | None:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        reading.expected(path, "tables, each written as `[[profile]]`", value)
        return None
    keys: Mapping[str, Key] = {
        "files": _strings,
        "framework": _string,
        "version": _version,
        "world-size": _positive,
        "activation-budget": _positive,
    }
    found = [reading.table(item, (*path, index), keys) for index, item in enumerate(value)]
    for index, item in enumerate(value):
        if "files" not in item:
            reading.wrong(reading.places.key((*reading.prefix, *path, index)), "a `[[profile]]` needs `files`")
    return tuple(table for table in found if "files" in table)


def _operators(reading: Reading, path: KeyPath, value: Any) -> tuple[Declared, ...] | None:
    from tvlint.run.project.operators import declared_operators

    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        reading.expected(path, "tables, each written as `[[operator]]`", value)
        return None
    keys: Mapping[str, Key] = {
        "name": _string,
        "annotation": _string,
        "arguments": _strings,
        "linear-in": _operands,
        "random": _flag,
        "same-as": _string,
    }
    tables = [reading.table(item, (*path, index), keys) for index, item in enumerate(value)]

    def place(index: int, key: str) -> Location:
        return reading.places.key((*reading.prefix, *path, index, *((key,) if key else ())))

    return declared_operators(value, tables, place, reading.wrong)


def _flag(reading: Reading, path: KeyPath, value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    reading.expected(path, "true or false", value)
    return None


def _operands(reading: Reading, path: KeyPath, value: Any) -> tuple[tuple[int | str, ...], ...] | None:
    found = []
    for entry in value if isinstance(value, list) else [None]:
        places = entry if isinstance(entry, list) and entry else [entry]
        if not all(isinstance(place, str) or (type(place) is int and place >= 0) for place in places):
            reading.expected(path, "a list of operands by name, or by position from 0, such as `[0, [1, 2]]`", value)
            return None
        found.append(tuple(places))
    return tuple(found)


def _amount(reading: Reading, path: KeyPath, value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MOST:
        return float(value)
    reading.expected(path, f"a number above 0, up to {MOST:,}", value)
    return None


def _budget(reading: Reading, path: KeyPath, value: Any) -> dict[str, float] | None:
    if not isinstance(value, dict):
        reading.expected(path, "a table of seconds and MiB", value)
        return None
    found = reading.table(value, path, dict.fromkeys(NAMES, _amount))
    return {name.replace("_", "-"): amount for name, amount in found.items()}


KEYS: Mapping[str, Key] = {
    "paths": _strings,
    "exclude": _strings,
    "select": _rules,
    "ignore": _rules,
    "severity": _severities,
    "per-file-ignores": _per_file_ignores,
    "fail-on": _severity,
    "baseline": _string,
    "world-size": _positive,
    "activation-budget": _positive,
    "framework": _string,
    "version": _version,
    "source-roots": _strings,
    "extends": _string,
    "profile": _profiles,
    "proof": _proofs,
    "operator": _operators,
    "budget": _budget,
}
