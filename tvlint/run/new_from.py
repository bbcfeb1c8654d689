"""The findings that a change brings: those that were not there where the change leaves the branch that it is for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tvlint.checkout.git import GitError, GitUnusable, ask
from tvlint.findings import Report
from tvlint.rule import Rule
from tvlint.run.baseline import Compared, compare, entries_of, place_of
from tvlint.run.check import check
from tvlint.run.discovery import Candidates
from tvlint.run.nested import excluded, moved
from tvlint.run.project import Project
from tvlint.run.revision import Entry, RevisionError, checkout, commit, take_out
from tvlint.run.session import Session


def merge_base(name: str) -> str:
    """Return the commit at which the current one leaves the history of `name`. Raises `RevisionError` where none is known."""
    theirs = commit(name)
    try:
        return ask(checkout(), "merge-base", theirs, commit("HEAD")).decode().strip()
    except GitUnusable as error:
        raise RevisionError(str(error), error.help) from None
    except GitError:
        message = f"no commit is known that `{name}` and the current one have in common"
        help = "fetch the history of both: `git fetch --unshallow`, or `fetch-depth: 0` at the checkout"
        raise RevisionError(message, help) from None


def compared_with(
    files: dict[str, Entry],
    report: Report,
    folder: Path,
    rules: Mapping[str, Rule],
    known: Mapping[str, Rule],
    project: Project,
    session: Session,
) -> Compared:
    """Return which findings of the report were not there in a commit that has the files; it is taken out into the folder.

    Checked there are the files that findings are about, and, for those that it does not have, the files that are gone since.
    """
    top = Path(checkout())
    about = {os.path.relpath(os.path.abspath(place_of(finding)), top).replace(os.sep, "/") for finding in report.findings}
    gone = {name for name in files if not os.path.lexists(top / name)} if about - files.keys() else set()
    wanted = sorted(name for name in {*(about & files.keys()), *gone} if not excluded(str(top / name), project))
    take_out(files, folder)
    there = moved(project, folder / os.path.relpath(project.folder.absolute(), top))
    before, _ = check(Candidates(tuple(str(folder / name) for name in wanted)), rules, known, there, session)
    return compare(report, entries_of(before.findings, folder), top)
