"""Which files a run looks at."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tvlint.findings import Problem
from tvlint.ir.location import Location
from tvlint.run.project import Project

MAXIMAL_FILES = 50_000
"""Files of one folder that are looked at."""
MAXIMAL_SIZE = 64 << 20
"""Bytes of the largest file that is opened because it lies in a folder; a file that is named is opened whatever its size."""
MAXIMAL_CONFIGURATION = 1 << 20
"""Bytes of the largest file that is searched for the names of changed files."""
_GENERATED = re.compile(
    r"gencode\d+\.py|graph\.ckp|compute_config\.pt|dist_param_map\.pt|origin_module_metadata\.pt(\.\d+)?", re.ASCII
)
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})


@dataclass(frozen=True, slots=True)
class Candidates:
    """The files to look at, and what went wrong or was left out while they were looked for.

    `named` are the paths that somebody asked for by name; the others were found in folders.
    """

    files: tuple[str, ...]
    named: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


def discover(paths: tuple[str, ...], project: Project) -> Candidates:
    """The files that `paths` name, and those in the folders they name that git tracks or that are not ignored.

    Without paths, those of the project; without a project, the current folder. What the project excludes is left out of
    folders, not of files that are named.
    """
    files: dict[str, None] = {}
    named: set[str] = set()
    problems: list[Problem] = []
    notes: list[str] = []
    for path in paths or tuple(shown(project.folder / path) for path in project.paths) or (".",):
        if os.path.isdir(path) and (closed := _closed(path)):
            problems.append(Problem(f"the folder cannot be opened: {closed}", Location(path)))
        elif os.path.isdir(path):
            found = _in_folder(path, notes)
            files.update(dict.fromkeys(file for file in found if not excluded(file, project) and _readable(file, notes)))
        elif os.path.isfile(path):
            files[path] = None
            named.add(path)
        else:
            problems.append(Problem(_absence(path), Location(path)))
    together = {path: as_folder(path) for path in files}
    named = {together.get(path, path) for path in named}
    return Candidates(tuple(dict.fromkeys(together.values())), frozenset(named), tuple(problems), tuple(notes))


def _absence(path: str) -> str:
    """Why the path is neither a file nor a folder."""
    if os.path.exists(path):
        return "not a regular file"
    return "a link that leads nowhere" if os.path.lexists(path) else "no such file or folder"


def changed(paths: tuple[str, ...], project: Project) -> Candidates:
    """The changed files that the project does not exclude, and the project's files that name one of them.

    A launch script that sources a changed file, or a YAML that builds on it, changes with it. pre-commit may split a long
    list of files over several calls, so a call never takes its arguments for the whole project.
    """
    kept = {as_folder(path): None for path in paths if os.path.isfile(path) and not excluded(path, project)}
    if not kept:
        return Candidates(())
    names = {os.fsencode(Path(path).name) for path in kept}
    around = discover((), project)
    kept.update({path: None for path in around.files if path not in kept and _names_one(path, names)})
    return Candidates(tuple(kept), notes=around.notes)


def _names_one(path: str, names: set[bytes]) -> bool:
    try:
        if os.path.getsize(path) > MAXIMAL_CONFIGURATION:
            return False
        content = Path(path).read_bytes()
    except OSError:
        return False
    return b"\0" not in content[:1024] and any(name in content for name in names)


def as_folder(path: str) -> str:
    """The folder, for a file that is part of a plan which a whole folder of generated code is; else the path."""
    folder, name = os.path.split(path)
    if _GENERATED.fullmatch(name) and os.path.isfile(os.path.join(folder, "gencode0.py")):
        return folder or os.curdir
    return path


def excluded(path: str, project: Project) -> bool:
    """Whether the project's `exclude` names the file or a folder around it."""
    return matches(path, project, project.exclude)


def matches(path: str, project: Project, patterns: Iterable[str]) -> bool:
    """Whether a pattern matches the file's path from the project's folder, a folder around it, or one part of it."""
    if not patterns:
        return False
    parts = Path(os.path.relpath(os.path.abspath(path), project.folder)).parts
    around = ["/".join(parts[: length + 1]) for length in range(len(parts))]
    for pattern in (pattern.rstrip("/").removeprefix("./") for pattern in patterns):
        if any(fnmatchcase(part, pattern) for part in (around if "/" in pattern else parts)):
            return True
    return False


def shown(path: Path) -> str:
    """The path as a person in the current folder writes it."""
    near = os.path.relpath(path)
    return str(path) if near.startswith(os.path.join("..", "..", "..")) else near


def _closed(folder: str) -> str:
    """Why the files of the folder cannot be listed; empty when they can."""
    try:
        with os.scandir(folder):
            return ""
    except OSError as error:
        return (error.strerror or "unknown error").lower()


def _in_folder(folder: str, notes: list[str]) -> list[str]:
    tracked = _tracked(folder)
    found: list[str] = []
    for path in _walked(folder, notes) if tracked is None else tracked:
        if len(found) >= MAXIMAL_FILES:
            notes.append(f"`{folder}` holds more than {MAXIMAL_FILES:,} files; the rest was not looked at")
            break
        found.append(os.path.normpath(os.path.join(folder, path)))
    return sorted(found)


def _tracked(folder: str) -> list[str] | None:
    """What git tracks in the folder or does not ignore; None where it is no work tree."""
    real = Path(folder).resolve()
    if not any(os.path.exists(parent / ".git") for parent in (real, *real.parents)):
        return None
    import subprocess

    command = ["git", "-c", "core.fsmonitor=false", "-C", folder, "ls-files", "-z", "-c", "-o", "--exclude-standard"]
    try:
        listed = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    files = dict.fromkeys(os.fsdecode(name) for name in listed.split(b"\0") if name)
    return list(files) or None


def _walked(folder: str, notes: list[str]) -> Iterator[str]:
    def unlisted(error: OSError) -> None:
        notes.append(f"`{error.filename}` cannot be opened and was not looked at")

    for parent, folders, files in os.walk(folder, onerror=unlisted):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        for name in sorted(files):
            yield os.path.relpath(os.path.join(parent, name), folder)


def _readable(path: str, notes: list[str]) -> bool:
    try:
        if not os.path.isfile(path):
            return False
        size = os.path.getsize(path)
    except OSError:
        return False
    if size > MAXIMAL_SIZE:
        notes.append(f"`{path}` is larger than {MAXIMAL_SIZE >> 20} MiB and was not looked at; name it to check it")
        return False
    return size > 0
