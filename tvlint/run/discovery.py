"""Discover the files of a run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tvlint.checkout.following import why_not_followed
from tvlint.checkout.git import GitError, GitUnusable, ask
from tvlint.checkout.opening import content, is_file
from tvlint.checkout.top import METADATA, is_within, top_of
from tvlint.checkout.tracking import is_repository
from tvlint.findings import Pairing, Problem
from tvlint.ir.location import Location
from tvlint.run.project import Project

MAXIMAL_FILES = 500_000
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
    """Return the files that `paths` name, and those in the folders they name that git tracks or that are not ignored.

    Without paths, those of the project; without a project, the current folder. What the project excludes is left out of
    folders, not of files that are named. The project's own paths lie in the checkout around it: a commit holds them.
    """
    files: dict[str, None] = {}
    named: set[str] = set()
    problems: list[Problem] = []
    notes: list[str] = []
    for path in paths or tuple(shown(project.folder / path) for path in project.paths) or (".",):
        if reason := why_not_followed(path) or ("" if paths else why_not_in_project(path, project)):
            problems.append(Problem(f"not looked at: {reason}", Location(path), "name it on the command line as it really is"))
        elif os.path.isdir(path) and (closed := _closed(path)):
            problems.append(Problem(f"the folder cannot be opened: {closed}", Location(path)))
        elif os.path.isdir(path):
            found = _in_folder(path, notes, problems)
            files.update(dict.fromkeys(file for file in found if not excluded(file, project) and _readable(file, notes)))
        elif is_file(path):
            files[path] = None
            named.add(path)
        else:
            problems.append(Problem(_absence(path), Location(path)))
    together = {path: as_folder(path) for path in files}
    named = {together.get(path, path) for path in named}
    return Candidates(tuple(dict.fromkeys(together.values())), frozenset(named), tuple(problems), tuple(notes))


def pairings(project: Project) -> tuple[Pairing, ...]:
    """Return where the project names the plans of its pairs."""
    return tuple(
        Pairing(shown(project.folder / path), proof.location)
        for proof in project.proofs
        for path in (*proof.parallel, *((proof.reference,) if proof.reference else ()))
    )


def why_not_in_project(path: str, project: Project) -> str:
    """Return why the project file may not name the path; empty where it may."""
    top, real = top_of(project.folder), os.path.realpath(path)
    if top is not None and not is_within(real, top):
        return "the project file names what lies outside of its checkout"
    if top is not None and METADATA in real[len(top) :].split(os.sep):
        return "the project file names what git keeps for itself"
    return ""


def _absence(path: str) -> str:
    """Return why the path is neither a file nor a folder."""
    if os.path.exists(path):
        return "not a regular file"
    return "a link that leads nowhere" if os.path.lexists(path) else "no such file or folder"


def changed(paths: tuple[str, ...], project: Project) -> Candidates:
    """Return the changed files that the project does not exclude, and the project's files that name one of them.

    A launch script that sources a changed file, or a YAML that builds on it, changes with it. pre-commit may split a long
    list of files over several calls, so a call never takes its arguments for the whole project.
    """
    notes: list[str] = []
    kept = {as_folder(path): None for path in paths if not excluded(path, project) and _readable(path, notes)}
    if not kept:
        return Candidates((), notes=tuple(notes))
    around = discover((), project)
    kept.update(dict.fromkeys(naming(tuple(kept), around.files)))
    return Candidates(tuple(kept), problems=around.problems, notes=(*notes, *around.notes))


def naming(named: Iterable[str], files: Iterable[str]) -> Iterator[str]:
    """Yield those of the files that name one of the others."""
    own = dict.fromkeys(named)
    names: dict[bytes, set[bytes]] = {}
    for path in own:
        folder, name = os.path.split(os.path.abspath(path))
        names.setdefault(os.fsencode(name), set()).add(os.fsencode(os.path.basename(folder)))
    yield from (path for path in files if path not in own and _names_one(path, names))


def _names_one(path: str, names: Mapping[bytes, set[bytes]]) -> bool:
    """Return whether the file names one of the changed ones: its whole name, behind its own folder where one is written.

    `names` are the names of the changed files, with the folders that have one.
    """
    try:
        data = content(path, MAXIMAL_CONFIGURATION)
    except OSError:
        return False
    if b"\0" in data[:1024]:
        return False
    return any(folder in _ANY_FOLDER or folder in names[name] for name in names for folder in _folders_before(name, data))


_ANY_FOLDER = (b"", b".", b"..")


def _folders_before(name: bytes, data: bytes) -> Iterator[bytes]:
    """Yield the folder that stands before each mention of the name; empty where none does, or one that a variable gives."""
    for match in re.finditer(rb"(?:(?<![$\w.-])([\w.-]*)/)?(?<![\w.-])" + re.escape(name) + rb"(?![\w-]|\.\w)", data):
        yield match[1] or b""


def as_folder(path: str) -> str:
    """The folder, for a file that is part of a plan which a whole folder of generated code is; else the path."""
    folder, name = os.path.split(path)
    if _GENERATED.fullmatch(name) and os.path.isfile(os.path.join(folder, "gencode0.py")):
        return folder or os.curdir
    return path


def excluded(path: str, project: Project) -> bool:
    """Return whether the project's `exclude` names the file or a folder around it."""
    return matches(path, project, project.exclude)


def matches(path: str, project: Project, patterns: Iterable[str]) -> bool:
    """Return whether a pattern matches the file's path from the project's folder, a folder around it, or one part of it."""
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
    """Return why the files of the folder cannot be listed; empty when they can."""
    try:
        with os.scandir(folder):
            return ""
    except OSError as error:
        return (error.strerror or "unknown error").lower()


def _in_folder(folder: str, notes: list[str], problems: list[Problem]) -> list[str]:
    try:
        listed = _tracked(folder)
    except GitError as error:
        help = error.help if isinstance(error, GitUnusable) else "name the files"
        problems.append(Problem(f"which files git ignores is not known: {error}", Location(folder), help))
        listed = None
    found: list[str] = []
    for path in _walked(folder, notes) if listed is None else listed:
        if len(found) >= MAXIMAL_FILES:
            message = f"the folder holds more than {MAXIMAL_FILES:,} files; the rest was not looked at"
            problems.append(Problem(message, Location(folder), "name the folders that hold configurations"))
            break
        found.append(os.path.normpath(os.path.join(folder, path)))
    return sorted(found)


def _tracked(folder: str) -> list[str] | None:
    """Return what git tracks in the folder or does not ignore; None where it is no work tree. Raises `GitError`."""
    top = top_of(folder)
    if top is None or not is_repository(top):
        return None
    inner = os.path.relpath(os.path.realpath(folder), top).replace(os.sep, "/")
    listed = ask(top, "ls-files", "-z", "-c", "-o", "--exclude-standard", "--", inner)
    files = dict.fromkeys(os.fsdecode(name) for name in listed.split(b"\0") if name)
    return [os.path.relpath(name, inner) for name in files] or None


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
        if os.path.islink(path) and (reason := why_not_followed(path)):
            notes.append(f"`{path}` was not looked at: {reason}")
            return False
        size = os.path.getsize(path)
    except OSError:
        return False
    if size > MAXIMAL_SIZE:
        notes.append(f"`{path}` is larger than {MAXIMAL_SIZE >> 20} MiB and was not looked at; name it to check it")
        return False
    return size > 0
