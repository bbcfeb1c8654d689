"""`tvlint baseline`."""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path

from tvlint.cli.arguments import fail
from tvlint.cli.progress import Progress
from tvlint.cli.session import deliver, looked_for, note, outputs, project, session, with_files
from tvlint.findings import Report
from tvlint.ir.location import Location
from tvlint.plurals import counted
from tvlint.rulebook.pages import load_rules
from tvlint.run.judge.check import check
from tvlint.run.output.exit_code import CLEAN, FOUND, INPUT
from tvlint.run.output.outputs import OutputError
from tvlint.run.project.discovery import discover, shown
from tvlint.run.project.nested import given
from tvlint.run.project.project_file import ProjectError
from tvlint.run.silence.baseline import (
    NAME,
    Compared,
    Entry,
    Scope,
    beyond,
    compare,
    entries_of,
    grown,
    load,
    part_of,
    paths_of,
    pruned,
    save,
)


def run(options: argparse.Namespace) -> int:
    """Write a baseline, take out of it what is no more, or hold that nothing of it is; give the exit code."""
    wanted = outputs(options)
    known = load_rules()
    try:
        settings = project(options, known)
        settings, candidates = with_files(options, settings, known, partial(discover, tuple(options.paths), settings))
        is_new = options.action == "write"
        paths = paths_of(settings, options.baseline, NAME if is_new else "") or {"": settings.folder / NAME}
        old = {at: load(path, settings) if not is_new or os.path.lexists(path) else () for at, path in paths.items()}
    except ProjectError as error:
        deliver(Report(problems=error.problems), wanted, options, known)
        return INPUT
    rules = looked_for(options, settings, known)
    if options.select:
        settings = given(settings, select=())
    if options.world_size is not None:
        settings = given(settings, world_size=options.world_size, world_size_location=Location("--world-size"))
    with Progress() as progress:
        report, _ = check(candidates, rules, known, settings, session(options, settings, progress))
    if report.problems:
        deliver(Report(problems=report.problems), wanted, options, known)
        kept = " and ".join(f"`{shown(path)}`" for path in paths.values())
        note(f"{kept} {'is' if len(paths) == 1 else 'are'} left as before: what could not be read was not judged")
        for path in (path for path in options.paths if path.endswith(".json") and not os.path.lexists(path)):
            note(f"`--baseline {shown(path)}` names a baseline; `{shown(path)}` alone is a path to check")
        return INPUT
    scope = Scope(known.keys() - rules, candidates.is_whole)
    parts = {at: part_of(report, at, paths, settings) for at in paths}
    if options.action == "write":
        new = {
            at: (*entries_of(part.findings, paths[at].parent), *beyond(old[at], part, paths[at].parent, scope))
            for at, part in parts.items()
        }
        for at, path in paths.items():
            _hold_size(path, old[at], new[at])
        for at, path in paths.items():
            _write(path, new[at])
        if not options.baseline and not settings.baseline:
            note(f'write `baseline = "{NAME}"` into the project file, and `tvlint check` tells only what is new')
        return CLEAN
    found = {at: compare(part, old[at], paths[at].parent, scope) for at, part in parts.items()}
    act = _prune if options.action == "prune" else _verify
    return max(act(path, old[at], found[at]) for at, path in paths.items())


def _hold_size(path: Path, old: tuple[Entry, ...], new: tuple[Entry, ...]) -> None:
    more = grown(old, new)
    if os.path.lexists(path) and more and os.environ.get("CI"):
        fail(f"`{shown(path)}` would grow by {counted(more, 'finding')}; in CI it only shrinks", "mend what is new")


def _write(path: Path, new: tuple[Entry, ...]) -> None:
    _save(path, new)
    note(f"`{shown(path)}` holds {counted(sum(entry.count for entry in new), 'finding')}")


def _prune(path: Path, old: tuple[Entry, ...], found: Compared) -> int:
    kept = pruned(old, found.stale)
    _save(path, kept)
    less, left = sum(entry.count for entry in found.stale), sum(entry.count for entry in kept)
    note(f"`{shown(path)}`: {counted(less, 'finding')} taken out, {left:,} left")
    return CLEAN


def _verify(path: Path, old: tuple[Entry, ...], found: Compared) -> int:
    """Return whether every entry still matches; new findings are for `tvlint check` to tell."""
    for entry in found.stale:
        note(f"`{shown(path)}`: no more: {entry.path}: {entry.message} [{entry.rule}]")
    if found.stale:
        note(f"`tvlint baseline prune` takes {'it' if len(found.stale) == 1 else 'them'} out")
    return FOUND if found.stale else CLEAN


def _save(path: Path, entries: tuple[Entry, ...]) -> None:
    try:
        save(path, entries)
    except OutputError as error:
        fail(str(error), error.help)
