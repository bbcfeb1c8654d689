"""The project file of a revision that is trusted, for a checkout whose own one a stranger may have changed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tvlint.checkout.following import why_not_followed
from tvlint.checkout.git import GitError, GitUnusable, ask
from tvlint.checkout.opening import content
from tvlint.checkout.top import is_within
from tvlint.findings import Finding, Problem, Severity
from tvlint.ir.location import Location
from tvlint.ir.values import replace
from tvlint.run.project.discovery import shown
from tvlint.run.project.nested import folders, projects
from tvlint.run.project.project_file import (
    MAXIMAL_SIZE,
    PROJECT_FILES,
    Project,
    ProjectError,
    find,
    mentions_tvlint,
    project_file_in,
    project_in,
)
from tvlint.run.project.revision import RevisionError, checkout, commit

CHANGED = "changed-policy"
NAMES = ("tvlint.toml", ".tvlint.toml", "pyproject.toml")


def load_policy(policy: str) -> Project:
    """Return the project that `REV[:PATH]` describes; without a path the nearest project file at or above the current folder.

    Its paths are those of the checkout. A revision without a project file leaves every setting at its default. Raises
    `ProjectError`.
    """
    revision, separator, path = policy.partition(":")
    try:
        top, found = checkout(), commit(revision)
    except RevisionError as error:
        raise ProjectError((Problem(f"the policy cannot be read: {error}", Location(policy), error.help),)) from None
    if separator:
        named = _project(top, found, revision, [os.path.normpath(path).replace(os.sep, "/")], is_named=True)
    else:
        named = _project(top, found, revision, _candidates(top))
    if named is not None:
        return named
    if separator:
        raise ProjectError((Problem(f"`{revision}` has no file `{path}` of at most {MAXIMAL_SIZE:,} bytes", Location(policy)),))
    return Project(Path(top), f"{revision}:{NAMES[0]}", revision=found)


def policy_at(revision: str, folder: Path) -> Project | None:
    """Return the project whose file lies in the folder in a revision. Raises `ProjectError`."""
    top = checkout()
    inner = Path(os.path.relpath(os.path.realpath(folder), os.path.realpath(top)))
    return _project(top, commit(revision), revision, [(inner / name).as_posix() for name in NAMES])


def _project(top: str, found: str, revision: str, names: Iterable[str], is_named: bool = False) -> Project | None:
    """Return the project of the first of the files that the commit has and that is about tvlint. Raises `ProjectError`."""

    def read(path: Path, _: Path) -> bytes:
        data = _content(top, found, os.path.relpath(path, top).replace(os.sep, "/"))
        if data is None:
            raise OSError(errno.ENOENT, f"`{revision}` does not have it")
        return data

    for name in names:
        data = _content(top, found, name)
        if data is not None and (is_named or os.path.basename(name) != NAMES[-1] or mentions_tvlint(data)):
            return replace(project_in(data, Path(top, name), f"{revision}:{name}", read), revision=found)
    return None


def trusted_content(project: Project, path: Path, largest: int) -> bytes:
    """Return what the file holds in the commit that the project file was taken from; on disk where it was taken from there,
    and outside of the checkout. Raises OSError, also where a link on the way is not followed.
    """
    top = os.path.realpath(checkout()) if project.revision else ""
    real = os.path.join(os.path.realpath(path.parent), path.name)
    if not top or not is_within(real, top):
        if reason := why_not_followed(str(path)):
            raise OSError(errno.EACCES, reason, str(path))
        return content(path, largest)
    data = _content(top, project.revision, os.path.relpath(real, top).replace(os.sep, "/"))
    if data is None:
        raise OSError(errno.ENOENT, "the revision of the policy does not have it", str(path))
    return data


def changed_policy(policy: str, project: Project, paths: Iterable[str] = ()) -> Iterator[Finding]:
    """Yield that the checkout has another project file than the revision that judges it, `REV[:PATH]`, where it has: the one of
    the run, and those of folders below it in which the paths lie.
    """
    revision, separator, path = policy.partition(":")
    top = checkout()
    there = Path(top, os.path.relpath(project.folder, top), os.path.basename(project.path.partition(":")[2]))
    nearest = Path(top, path) if separator else find(Path(os.path.realpath(os.curdir)))
    yield from _changed(revision, project, there, nearest)
    for base in dict.fromkeys(base for each_project in projects(project) for base in each_project.bases):
        yield from _changed(revision, project, Path(base), Path(base) if os.path.isfile(base) else None)
    for folder in dict.fromkeys(folder for name in paths for folder in folders(project, name)) if not separator else ():
        judge = project.nested.get(folder)
        here = project_file_in(project.folder / folder)
        if here != nearest and (judge is not None or here is not None):
            name = PROJECT_FILES[0] if judge is None else os.path.basename(judge.path)
            yield from _changed(revision, judge or project, project.folder / folder / name, here)


def _changed(revision: str, project: Project, there: Path, project_file: Path | None) -> Iterator[Finding]:
    """Yield that the project file `own` of the checkout is not `there` in the revision, or holds something else."""
    top = checkout()
    trusted = _content(top, project.revision, os.path.relpath(there, top).replace(os.sep, "/"))
    try:
        here = None if project_file is None else content(project_file, MAXIMAL_SIZE)
    except OSError:
        here = None
    if here == trusted and (here is None or os.path.realpath(project_file or "") == os.path.realpath(there)):
        return
    place = project_file or there
    text = f"the project file is not that of `{revision}`, which judges this change"
    if here is None:
        text = f"the change takes away the project file of `{revision}`, which judges it"
    elif trusted is None:
        text = f"the change adds a project file, which `{revision}` does not have"
    elif project_file is not None:
        text += _of_operators(project_file, here, project)
    yield Finding(CHANGED, Severity.WARNING, text, Location(shown(place)), "review it: it counts for the next change")


def _of_operators(path: Path, data: bytes, trusted: Project) -> str:
    """Return what the project file at `path` says of operators, where that is not what the trusted one says."""
    try:
        found = project_in(data, path, str(path))
    except ProjectError:
        return "; it has mistakes (`tvlint config verify` names them)"
    return "; it declares other operators" if found.operators != trusted.operators else ""


def _candidates(top: str) -> list[str]:
    """Return the paths at which a project file of the current folder may stand, the nearest first, from the top."""
    here = Path(os.path.relpath(os.path.realpath(os.curdir), top))
    return [(folder / name).as_posix() for folder in (here, *here.parents) for name in NAMES]


def _content(top: str, found: str, name: str) -> bytes | None:
    """Return what a regular file of the commit holds; None where there is none."""
    try:
        head, _, listed = ask(top, "ls-tree", "-l", "-z", found, "--", name).partition(b"\t")
        parts = head.split()
        if listed != os.fsencode(name) + b"\0" or parts[0] not in (b"100644", b"100755") or int(parts[3]) > MAXIMAL_SIZE:
            return None
        return ask(top, "cat-file", "blob", parts[2].decode("ascii"))
    except GitUnusable as error:
        raise ProjectError((Problem(str(error), Location(name), error.help),)) from None
    except GitError:
        return None
