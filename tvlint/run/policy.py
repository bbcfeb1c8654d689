"""The project file of a revision that is trusted, for a checkout whose own one a stranger may have changed."""

from __future__ import annotations

import os
from pathlib import Path

from tvlint.checkout.git import GitError, GitUnusable, ask
from tvlint.findings import Problem
from tvlint.ir.location import Location
from tvlint.run.project import MAXIMAL_SIZE, Project, ProjectError, mentions_tvlint, project_in
from tvlint.run.revision import RevisionError, checkout, commit

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
    names = [os.path.normpath(path).replace(os.sep, "/")] if separator else _candidates(top)
    for name in names:
        data = _content(top, found, name)
        if data is not None and (separator or os.path.basename(name) != NAMES[-1] or mentions_tvlint(data)):
            return project_in(data, Path(top, name), f"{revision}:{name}")
    if separator:
        raise ProjectError((Problem(f"`{revision}` has no file `{path}` of at most {MAXIMAL_SIZE:,} bytes", Location(policy)),))
    return Project(Path(top), f"{revision}:{NAMES[0]}")


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
