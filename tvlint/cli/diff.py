"""`tvlint diff`."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tvlint.checkout.following import content_listed
from tvlint.cli.arguments import fail
from tvlint.cli.session import applying, deliver, note, outputs, project, with_files
from tvlint.findings import Problem, Report, Severity
from tvlint.ir.location import Location
from tvlint.rulebook.pages import load_rules
from tvlint.run.change.diff import FilePair, diff, same_named
from tvlint.run.change.moves import moves
from tvlint.run.output.exit_code import CLEAN, INPUT, NOTHING, exit_code
from tvlint.run.project.discovery import Candidates, changed, excluded, shown
from tvlint.run.project.nested import given
from tvlint.run.project.project_file import Project, ProjectError
from tvlint.run.project.revision import (
    LARGEST_FILE,
    RevisionError,
    came_and_gone,
    changed_files,
    checkout,
    commit,
    entries,
    is_revision,
    take_out,
)


def run(options: argparse.Namespace) -> int:
    """Compare two versions of configurations, report, and give the exit code."""
    wanted = outputs(options)
    known = load_rules()
    try:
        settings = project(options, known)
    except ProjectError as error:
        deliver(Report(problems=error.problems), wanted, options, known)
        return INPUT
    rules = applying(options, settings, known)
    fail_on = Severity(options.fail_on) if options.fail_on else settings.fail_on
    folder = options.steps.conclude(os.curdir, lambda: tempfile.mkdtemp(prefix="tvlint-diff-"))
    try:
        pairs = options.steps.do(os.curdir, lambda: _pairs(options.what, Path(folder), settings), "the search for files")
        if isinstance(pairs, Problem):
            deliver(Report(problems=(pairs,)), wanted, options, known)
            return INPUT
        settings, candidates = with_files(options, settings, known, lambda: Candidates(tuple(pair.name for pair in pairs)))
        if candidates.problems:
            deliver(Report(problems=candidates.problems), wanted, options, known)
            return INPUT
        if options.world_size is not None:
            settings = given(settings, world_size=options.world_size, world_size_location=Location("--world-size"))
        report, notes = diff(pairs, rules, known, settings, options.steps)
        report = deliver(report, wanted, options, known, fail_on)
    except RevisionError as error:
        fail(str(error), error.help or "give two files, or a revision of the repository around the current folder")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for text in notes:
        note(text)
    code = exit_code(report, fail_on)
    if code == NOTHING:
        note("nothing to compare: no configuration differs")
        return CLEAN
    return code


def _pairs(what: list[str], folder: Path, settings: Project) -> tuple[FilePair, ...]:
    if len(what) == 2 and os.path.isfile(what[0]) and os.path.isfile(what[1]):
        return (FilePair(what[0], what[1]),)
    if len(what) == 2 and os.path.isdir(what[0]) and os.path.isdir(what[1]) and not is_revision(what[0]):
        return same_named(Path(what[0]), Path(what[1]))
    if not is_revision(what[0]):
        missing = next((path for path in what if not os.path.exists(path)), "")
        if missing == what[0]:
            raise RevisionError(f"`{missing}` is neither a file nor a revision of a git repository here")
        raise RevisionError(f"no file `{missing}`" if missing else f"`{what[0]}` has nothing to be compared with")
    return tuple(_between(what, folder, settings))


def _between(what: list[str], folder: Path, settings: Project) -> Iterator[FilePair]:
    """Yield the files that differ between a revision and another one, or the disk; those too that name one that differs.

    Those that came or are gone are among them, each alone unless one has only another name.
    """
    root = Path(checkout())
    before = entries(commit(what[0]))
    two = len(what) > 1 and not os.path.exists(what[1]) and is_revision(what[1])
    after = entries(commit(what[1])) if two else None
    paths = tuple(what[2 if two else 1 :])
    names = changed_files(before, after, paths)
    came, gone = came_and_gone(before, after, paths)
    if not names and not came and not gone:
        return
    take_out(before, folder / "before")
    if after is not None:
        take_out(after, folder / "after")
    elif names:
        around = changed(tuple(shown(root / name) for name in names), settings).files
        names = tuple(dict.fromkeys((*names, *(os.path.relpath(os.path.abspath(path), root) for path in around))))
    folders = (root if after is None else folder / "after", folder / "before")
    called = moves(came, gone, lambda name, is_new: _lines(folders[not is_new] / name))
    of_another_name = frozenset(called.values())
    for name in (*names, *came, *(name for name in gone if name not in of_another_name)):
        was = called.get(name, name)
        old, path = folder / "before" / was, shown(root / name)
        new = folder / "after" / name if after is not None else root / name if name in gone else Path(path)
        one, other = (str(each) if os.path.isfile(each) else "" for each in (old, new))
        if (one or other) and not excluded(path, settings):
            yield FilePair(one, other, path, shown(root / was) if was != name else "")


def _lines(path: Path) -> tuple[bytes, ...]:
    try:
        return tuple(content_listed(path, LARGEST_FILE).splitlines())
    except OSError:
        return ()
