"""The project file: `tvlint.toml`, or `[tool.tvlint]` of `pyproject.toml`."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvlint.checkout.following import content_named, why_not_followed
from tvlint.checkout.opening import content
from tvlint.findings import Problem, Severity
from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass, field, replace
from tvlint.readers.sources.toml_text import NotToml, parse
from tvlint.run.project.toml_places import KeyPath, Places
from tvlint.run.project.values import KEYS, ProofPair, Reading

if TYPE_CHECKING:
    from tvlint.ops.annotations.declared import Declared

PROJECT_FILES = ("tvlint.toml", ".tvlint.toml")
"""What a file is called that is nothing but a project file."""
MAXIMAL_SIZE = 1 << 20
"""Bytes of the largest project file that is read."""
_TABLE = Pattern(rb"^[ \t]*(?:\[[ \t]*)?tool[ \t]*\.[ \t]*tvlint\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Profile:
    """One `[[profile]]`: settings, by field of the project, for the files of some patterns."""

    files: tuple[str, ...]
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Project:
    """The settings of a project file; the defaults are those of a project without one.

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
    pattern_locations: Mapping[str, Location] = field(default_factory=dict)
    """Where the patterns of `per_file_ignores` stand."""
    fail_on: Severity = Severity.ERROR
    baseline: str = ""
    """The file with the findings that are known, from `folder`."""
    world_size: int | None = None
    world_size_location: Location | None = None
    activation_budget: int | None = None
    """Micro-batches of activations that a rank of a pipeline schedule may hold at a time."""
    framework: str = ""
    framework_location: Location | None = None
    version: str = ""
    proofs: tuple[ProofPair, ...] = ()
    source_roots: tuple[str, ...] = (".",)
    """Folders in which the files lie that plans were traced from."""
    operators: tuple[Declared, ...] = ()
    """The operators that the project declares, in order."""
    budget: Mapping[str, float] = field(default_factory=dict)
    """What a run and each file of it may take, by name."""
    names: tuple[tuple[str, Location], ...] = ()
    heeds_comments: bool = True
    """Whether comments in checked files silence findings."""
    bases: tuple[str, ...] = ()
    """The files that the project file extends, the nearest first."""
    profiles: tuple[Profile, ...] = ()
    """What holds for some of the files, in order."""
    nested: Mapping[str, Project] = field(default_factory=dict)
    """The projects of folders below, by folder from this one: each judges the files in its own."""
    revision: str = ""
    """The commit that the project file was taken from, and its baseline with it; empty: what is on disk."""


class ProjectError(Exception):
    """The project file is wrong; carries every problem that was found in it."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__(problems[0].message)
        self.problems = problems


def find(start: Path) -> Path | None:
    """The nearest project file at or above `start`; the top of a git repository ends the search."""
    for folder in (start, *start.parents):
        found = project_file_in(folder)
        if found is not None:
            return found
        if os.path.exists(folder / ".git"):
            return None
    return None


def project_file_in(folder: Path) -> Path | None:
    """Return the project file that lies in the folder itself."""
    for name in PROJECT_FILES:
        if os.path.lexists(folder / name):
            return folder / name
    return folder / "pyproject.toml" if _mentions_tvlint(folder / "pyproject.toml") else None


def _mentions_tvlint(path: Path) -> bool:
    try:
        return mentions_tvlint(content(path, MAXIMAL_SIZE))
    except OSError:
        return False


def mentions_tvlint(data: bytes) -> bool:
    """Return whether the content of a `pyproject.toml` has a table for tvlint."""
    return _TABLE.search(data) is not None


def load(path: Path, shown: str) -> Project:
    """Return the project that the file describes; raises `ProjectError` with all its problems, each at its line."""
    try:
        data = _on_disk(path)
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise _failed(shown, f"the project file cannot be read: {reason}") from None
    return project_in(data, path, shown)


def _on_disk(path: Path) -> bytes:
    if reason := why_not_followed(str(path)):
        raise OSError(errno.EPERM, reason)
    return content(path, MAXIMAL_SIZE)


def _extended_on_disk(path: Path, by: Path) -> bytes:
    return content_named(str(path), str(by), MAXIMAL_SIZE)


def project_in(
    data: bytes,
    path: Path,
    shown: str,
    read: Callable[[Path, Path], bytes] = _extended_on_disk,
    extending: tuple[Path, ...] = (),
) -> Project:
    """Return the project that the content of the file at `path` describes; raises `ProjectError`.

    `read` opens what a file extends, and raises OSError; `extending` are the files that it is read for, each extends the next.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise _failed(shown, "the project file is not UTF-8 text") from None
    document = _parsed(shown, text)
    prefix: KeyPath = ()
    if path.name == "pyproject.toml":
        prefix = ("tool", "tvlint")
        tool = document.get("tool", {})
        document = tool.get("tvlint", {}) if isinstance(tool, dict) else {}
    reading = Reading(Places(shown, text), prefix)
    if isinstance(document, dict):
        values = reading.table(document, (), KEYS)
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
    values["profiles"] = _profiles(values.pop("profile", ()), reading, prefix)
    patterns = values.get("per_file_ignores", {})
    values["pattern_locations"] = {pattern: reading.places.key((*prefix, "per-file-ignores", pattern)) for pattern in patterns}
    base = values.pop("extends", "")
    project = Project(path.parent, shown, names=tuple(reading.names), **values)
    if not base:
        return project
    place = reading.places.key((*prefix, "extends"))
    return _extended(project, frozenset(values), _base(base, place, path, read, extending))


INHERITED = (
    "select", "ignore", "fail_on", "world_size", "world_size_location", "activation_budget", "framework", "framework_location",
    "version", "operators",
)  # fmt: skip
"""What a project file takes from the one that it extends where it does not give it; not what names files."""
MOST_EXTENDED = 8


def _base(name: str, place: Location, path: Path, read: Callable[[Path, Path], bytes], extending: tuple[Path, ...]) -> Project:
    """Return the project that the file at `path` extends; raises `ProjectError` at the place that names it."""
    base = Path(os.path.normpath(path.parent / name))
    if base in (*extending, path) or len(extending) >= MOST_EXTENDED:
        raise ProjectError(
            (Problem(f"`{name}` extends this file in the end, or through more than {MOST_EXTENDED} others", place),)
        )
    try:
        data = read(base, path)
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise ProjectError((Problem(f"`{name}`, which this file extends, cannot be read: {reason}", place),)) from None
    return project_in(data, base, os.path.join(os.path.dirname(place.path), name), read, (*extending, path))


def _extended(project: Project, given: frozenset[str], base: Project) -> Project:
    """Return the project with what its file does not give of the project that it extends."""
    inherited: dict[str, Any] = {name: getattr(base, name) for name in INHERITED if name.removesuffix("_location") not in given}
    severity, budget = {**base.severity, **project.severity}, {**base.budget, **project.budget}
    bases = (str(base.folder / os.path.basename(base.path)), *base.bases)
    return replace(project, severity=severity, budget=budget, names=(*project.names, *base.names), bases=bases, **inherited)


def _profiles(tables: tuple[dict[str, Any], ...], reading: Reading, prefix: KeyPath) -> tuple[Profile, ...]:
    """Return the profiles, each with the places of what it says."""
    found = []
    for index, table in enumerate(tables):
        values = {name: value for name, value in table.items() if name != "files"}
        for key in ("world-size", "framework"):
            name = key.replace("-", "_")
            if name in values:
                values[f"{name}_location"] = reading.places.key((*prefix, "profile", index, key))
        found.append(Profile(table["files"], values))
    return tuple(found)


def _failed(shown: str, message: str, line: int | None = None, column: int | None = None) -> ProjectError:
    return ProjectError((Problem(message, Location(shown, line, column)),))


def _parsed(shown: str, text: str) -> dict[str, Any]:
    try:
        return parse(text)
    except NotToml as error:
        raise _failed(shown, f"not TOML: {error.message}", error.line, error.column) from None
