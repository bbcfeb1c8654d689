"""`tvlint config verify`."""

from __future__ import annotations

import argparse
import os
from functools import partial

from tvlint.cli.session import deliver, note, outputs, project, with_files
from tvlint.findings import Problem, Report
from tvlint.ir.location import Location
from tvlint.rulebook.pages import load_rules
from tvlint.run.output.exit_code import CLEAN, INPUT
from tvlint.run.project.discovery import discover
from tvlint.run.project.nested import projects
from tvlint.run.project.project_file import Project, ProjectError


def run(options: argparse.Namespace) -> int:
    """Report every mistake of the project file and of those below it; a project without one is clean."""
    wanted = outputs(options)
    rules = load_rules()
    try:
        found = project(options, rules)
        everywhere = partial(discover, (str(found.folder),), Project(found.folder))
        whole, candidates = with_files(options, found, rules, everywhere)
        problems = (*candidates.problems, *(problem for project in projects(whole) for problem in _missing(project)))
    except ProjectError as error:
        problems = error.problems
    else:
        if not found.path:
            note("no project file here or above; every setting has its default")
            return CLEAN
    if problems:
        deliver(Report(problems=problems), wanted, options, rules)
        return INPUT
    for each_project in projects(whole):
        note(f"`{each_project.path}` is correct")
    return CLEAN


def _missing(found: Project) -> list[Problem]:
    """Return the paths that the project file names and that do not exist."""
    places = [(path, Location(found.path)) for path in found.paths]
    for pair in found.proofs:
        places += [(path, pair.location) for path in (pair.reference, *pair.parallel)]
    missing = [(path, place) for path, place in places if not os.path.exists(found.folder / path)]
    return [Problem(f"no such file or folder `{path}`", place) for path, place in missing]
