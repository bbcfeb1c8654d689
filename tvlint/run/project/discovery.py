"""Discover the files of a run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from tvlint.checkout.following import why_not_followed
from tvlint.checkout.git import GitError, GitUnusable, ask
from tvlint.checkout.opening import is_empty, is_file
from tvlint.checkout.top import METADATA, is_within, top_of
from tvlint.checkout.tracking import is_repository
from tvlint.findings import Finding, Pairing, Problem
from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass
from tvlint.run.project.project_file import Project
from tvlint.run.project.unjudged import unjudged

if TYPE_CHECKING:
    from tvlint.cache.remember import Cache

MAXIMAL_FILES = 500_000
"""Files of one folder that are looked at."""
MAXIMAL_SIZE = 64 << 20
"""Bytes of the largest file that is opened because it lies in a folder; a file that is named is opened whatever its size."""
_GENERATED = Pattern(
    r"gencode\d+\.py|graph\.ckp|compute_config\.pt|dist_param_map\.pt|origin_module_metadata\.pt(\.\d+)?", re.ASCII
)
_SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})


@dataclass(frozen=True, slots=True)
class Candidates:
    """The files to look at, and what went wrong or was found while they were looked for.

    `named` are the paths that somebody asked for by name; the others were found in folders.
    """

    files: tuple[str, ...]
    named: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()
    findings: tuple[Finding, ...] = ()
    is_whole: bool = False
    """Whether these are all files of the project."""


def discover(paths: tuple[str, ...], project: Project) -> Candidates:
    """Return the files that `paths` name, and those in the folders they name that git tracks or that are not ignored.

    Without paths, those of the project; without a project, the current folder. What the project excludes is left out of
    folders, not of files that are named. The project's own paths lie in the checkout around it: a commit holds them.
    """
    files: dict[str, None] = {}
    named: set[str] = set()
    problems: list[Problem] = []
    findings: list[Finding] = []
    for path in paths or tuple(shown(project.folder / path) for path in project.paths) or (".",):
        if reason := why_not_followed(path) or ("" if paths else why_not_in_project(path, project)):
            problems.append(Problem(f"not looked at: {reason}", Location(path), "give its real path on the command line"))
        elif os.path.isdir(path) and (closed := _closed(path)):
            problems.append(Problem(f"the folder cannot be opened: {closed}", Location(path)))
        elif os.path.isdir(path):
            found = _in_folder(path, findings, problems)
            kept = [file for file in found if not excluded(file, project) and _readable(file, findings)]
            files.update(dict.fromkeys(kept))
        elif is_file(path):
            files[path] = None
            named.add(path)
        else:
            problems.append(Problem(_absence(path), Location(path)))
    together = {path: as_folder(path) for path in files}
    named = {together.get(path, path) for path in named}
    top = os.path.realpath(project.folder)
    is_whole = (not paths and bool(project.paths)) or any(os.path.realpath(path) == top for path in paths or (".",))
    return Candidates(tuple(dict.fromkeys(together.values())), frozenset(named), tuple(problems), tuple(findings), is_whole)


def pairings(project: Project) -> tuple[Pairing, ...]:
    """Return where the project names the plans of its pairs."""
    return tuple(
        Pairing(shown(project.folder / path), proof.location)
        for proof in project.proofs
        for path in (*proof.parallel, *((proof.reference,) if proof.reference else ()))
        if not proof.launch
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


def changed(paths: tuple[str, ...], project: Project, cache: Cache | None = None) -> Candidates:
    """Return the changed files that the project does not exclude, and the project's files that depend on one of them.

    A launch script that sources a changed file, or a YAML that builds on it, changes with it, also where the file is empty or
    gone now. pre-commit may split a long list of files over several calls, so a call never takes its arguments for the whole
    project.
    """
    findings: list[Finding] = []
    kept = {as_folder(path): None for path in paths if not excluded(path, project) and _readable(path, findings)}
    if not paths:
        return Candidates(())
    from tvlint.run.project.dependents import dependents

    around = discover((), project)
    altered = tuple(dict.fromkeys((*kept, *paths)))
    kept.update(dict.fromkeys(dependents((path for path in around.files if path not in kept), altered, cache)))
    return Candidates(tuple(kept), problems=around.problems, findings=(*findings, *around.findings))


def as_folder(path: str) -> str:
    """Return the folder, for a file that is part of a plan which a whole folder of generated code is; else the path."""
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
    """Return the path as a person in the current folder writes it."""
    near = os.path.relpath(path)
    return str(path) if near.startswith(os.path.join("..", "..", "..")) else near


def _closed(folder: str) -> str:
    """Return why the files of the folder cannot be listed; empty when they can."""
    try:
        with os.scandir(folder):
            return ""
    except OSError as error:
        return (error.strerror or "unknown error").lower()


def _in_folder(folder: str, findings: list[Finding], problems: list[Problem]) -> list[str]:
    try:
        listed = _tracked(folder)
    except GitError as error:
        help = error.help if isinstance(error, GitUnusable) else "name the files"
        problems.append(Problem(f"which files git ignores is not known: {error}", Location(folder), help))
        listed = None
    found: list[str] = []
    for path in _files_below(folder, findings) if listed is None else listed:
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


def _files_below(folder: str, findings: list[Finding]) -> Iterator[str]:
    def unlisted(error: OSError) -> None:
        findings.append(unjudged(str(error.filename), "the folder cannot be opened"))

    for parent, folders, files in os.walk(folder, onerror=unlisted):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        for name in sorted(files):
            yield os.path.relpath(os.path.join(parent, name), folder)


def _readable(path: str, findings: list[Finding]) -> bool:
    """Return whether the file that was found is looked at; why not, where that is not plain, is a finding."""
    try:
        reason = _why_not_looked_at(path)
        if reason:
            findings.append(unjudged(path, reason))
        return not reason and is_file(path) and not is_empty(path)
    except OSError:
        return False


def _why_not_looked_at(path: str) -> str:
    """Return what speaks against looking at the file; empty for nothing. Raises OSError."""
    if os.path.islink(path) and (reason := why_not_followed(path)):
        return reason
    if not is_file(path):
        if os.path.isdir(path):
            is_checkout = os.path.lexists(os.path.join(path, METADATA)) and not os.path.islink(path)
            return "a checkout in the checkout: run tvlint there" if is_checkout else ""
        return _absence(path) if os.path.lexists(path) else ""
    if os.path.getsize(path) > MAXIMAL_SIZE:
        return f"larger than {MAXIMAL_SIZE >> 20} MiB; name it to check it"
    return ""
