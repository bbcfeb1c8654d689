"""Which settings judge a file: those of the nearest project file at or above it, with those of its profiles."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tvlint.findings import Problem
from tvlint.ir.values import replace
from tvlint.run.project.discovery import Candidates, matches, shown
from tvlint.run.project.project_file import PROJECT_FILES, Project, ProjectError, load, project_file_in
from tvlint.run.project.unjudged import unjudged

At = Callable[[Path], Project | None]
"""The project whose file lies in the very folder; None where none does. Raises `ProjectError`."""

_ANOTHER = "a project file that this run does not apply: `--config` or `--policy` names another"


def on_disk(folder: Path) -> Project | None:
    """Return the project whose file lies in the folder. Raises `ProjectError`."""
    found = project_file_in(folder)
    return None if found is None else load(found, shown(found))


def with_nested(project: Project, candidates: Candidates, at: At | None) -> tuple[Project, Candidates]:
    """Return the project with those of the folders below it in which files of the run lie, and the files that these leave in.

    A project file that is wrong is a problem, and its files are judged as the project around it says. Where only one project
    file counts (`at` is None), each other one among the files is a finding.
    """
    if at is None:
        others = [path for path in candidates.files if os.path.basename(path) in PROJECT_FILES and _below(project, path)]
        return project, replace(candidates, findings=(*candidates.findings, *(unjudged(path, _ANOTHER) for path in others)))
    nested: dict[str, Project] = {}
    problems: list[Problem] = []
    for folder in dict.fromkeys(folder for path in candidates.files for folder in folders(project, path)):
        try:
            found = at(Path(project.folder, folder))
        except ProjectError as error:
            problems += error.problems
        else:
            nested |= {} if found is None else {folder: found}
    whole = replace(project, nested=nested)
    left = tuple(path for path in candidates.files if path in candidates.named or not excluded(path, whole))
    return whole, replace(candidates, files=left, problems=(*candidates.problems, *problems))


def excluded(path: str, project: Project) -> bool:
    """Return whether the project file that judges the path excludes it."""
    this_project = project.nested.get(folder_of(path, project), project)
    return matches(path, this_project, this_project.exclude)


def folder_of(path: str, project: Project) -> str:
    """Return the folder, from that of the project, whose project file judges the path; empty for the project's own."""
    if not project.nested:
        return ""
    return next((folder for folder in folders(project, path) if folder in project.nested), "")


def judging(path: str, project: Project) -> Project:
    """Return the project with the settings that judge the file."""
    this_project = project.nested.get(folder_of(path, project), project)
    for profile in this_project.profiles:
        if matches(path, this_project, profile.files):
            this_project = replace(this_project, **profile.values)
    return this_project


def projects(project: Project) -> tuple[Project, ...]:
    """Return the project, and those of the folders below it."""
    return (project, *project.nested.values())


def given(project: Project, **values: Any) -> Project:
    """Return the project with values that the command line gives, which count for every file."""
    nested = {folder: given(each_project, **values) for folder, each_project in project.nested.items()}
    profiles = tuple(
        replace(profile, values={name: value for name, value in profile.values.items() if name not in values})
        for profile in project.profiles
    )
    return replace(project, **values, nested=nested, profiles=profiles)


def moved(project: Project, folder: Path) -> Project:
    """Return the project as it stands in another folder, with those below it."""
    return replace(project, folder=folder, nested={name: moved(each, folder / name) for name, each in project.nested.items()})


def judged_by(project: Project, paths: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield the project files of folders below, each with how many of the files it judges."""
    folders = [folder_of(path, project) for path in paths] if project.nested else []
    for folder, each_project in project.nested.items():
        if folder in folders:
            yield each_project.path, folders.count(folder)


def folders(project: Project, path: str) -> Iterator[str]:
    """Yield the folders from that of the path up to that of the project, which is left out, as written from there."""
    folder = os.path.relpath(os.path.dirname(os.path.abspath(path)), os.path.abspath(project.folder))
    while folder not in ("", os.curdir) and folder.split(os.sep)[0] != os.pardir:
        yield folder
        folder = os.path.dirname(folder)


def _below(project: Project, path: str) -> bool:
    return any(True for _ in folders(project, path))
