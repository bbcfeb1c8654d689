"""The findings that a change brings: those that were not there where the change leaves the branch that it is for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from tvlint.checkout.git import GitError, GitUnusable, ask
from tvlint.checkout.opening import content
from tvlint.findings import Finding, Related, Report
from tvlint.ir.location import Location
from tvlint.rule import Rule
from tvlint.run.judge.check import check
from tvlint.run.process.session import Session
from tvlint.run.project.discovery import Candidates
from tvlint.run.project.nested import excluded, moved
from tvlint.run.project.project_file import Project
from tvlint.run.project.revision import LARGEST_FILE, Entry, RevisionError, checkout, commit, take_out
from tvlint.run.silence.baseline import Compared, compare, entries_of, place_of


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

    Checked there are the files that findings are about, and, for those that it does not have, the files that are gone since. A
    new finding stands where the change has written, if one of its places does. Raises `RevisionError` where time or memory ends
    before all that was there is known: a finding that was there would be new.
    """
    top = Path(checkout())
    about = {os.path.relpath(os.path.abspath(place_of(finding)), top).replace(os.sep, "/") for finding in report.findings}
    gone = {name for name in files if not os.path.lexists(top / name)} if about - files.keys() else set()
    wanted = sorted(name for name in {*(about & files.keys()), *gone} if not excluded(str(top / name), project))
    take_out(files, folder)
    there = moved(project, folder / os.path.relpath(project.folder.absolute(), top))
    before, _ = check(Candidates(tuple(str(folder / name) for name in wanted)), rules, known, there, session)
    unfinished = next((problem for problem in before.problems if problem.unfinished), None)
    if unfinished is not None:
        path = os.path.relpath(unfinished.location.path, folder)
        raise RevisionError(f"what `{path}` held before the change is not known: {unfinished.message}", unfinished.help)
    found = compare(report, entries_of(before.findings, folder), top)
    is_written = _written(top, folder)
    return replace(found, new=tuple(at_change(finding, is_written) for finding in found.new))


def at_change(finding: Finding, is_written: Callable[[Location], bool]) -> Finding:
    """Return the finding at the first of its places that the change has written; where it stands, if none was."""
    places = [related for related in finding.related if not related.leads and is_written(related.location)]
    if not places or is_written(finding.location):
        return finding
    others = [related for related in finding.related if related is not places[0]]
    left = Related("the change leaves this line as it was", finding.location)
    found_in = finding.found_in or finding.location.path
    at = places[0].location
    return replace(finding, location=at, related=(left, *others), found_in="" if found_in == at.path else found_in)


def _written(top: Path, before: Path) -> Callable[[Location], bool]:
    """Return what tells of a place whether its line is none that its file had before the change."""
    now, then = cache(_lines), cache(lambda path: frozenset(_lines(path)))

    def is_written(place: Location) -> bool:
        lines = now(place.path)
        if place.line is None or not 0 < place.line <= len(lines):
            return False
        inner = os.path.relpath(os.path.realpath(place.path), top)
        return lines[place.line - 1] not in then(str(before / inner))

    return is_written


def _lines(path: str) -> tuple[bytes, ...]:
    try:
        return tuple(content(path, LARGEST_FILE).splitlines())
    except OSError:
        return ()
