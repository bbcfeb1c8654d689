"""What an editor shows of a text that is being typed: findings, what stands behind a place, and edits that repair it.

Open texts stand in the place of their files, so that a launch script is judged with the file that it sources as that is being
changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tvlint.checkout.opening import content, instead
from tvlint.edits.apply import Text
from tvlint.findings import Finding, Fix, Problem, Report
from tvlint.ir.configuration import Configuration, Setting, Unknown
from tvlint.ir.location import Location
from tvlint.rule import Rule, labelled
from tvlint.rulebook.language.functions import show
from tvlint.rulebook.pages import explanation_of
from tvlint.run.judge.check import Rules, check
from tvlint.run.judge.known_settings import as_known
from tvlint.run.judge.topology import topologies
from tvlint.run.output.json_places import with_lines
from tvlint.run.process.answer import value_of
from tvlint.run.process.budget import Budget
from tvlint.run.process.worker import Steps
from tvlint.run.project.discovery import Candidates, excluded, matches
from tvlint.run.project.nested import judging
from tvlint.run.project.project_file import Project, ProjectError, find, load
from tvlint.run.project.reading import read_document
from tvlint.run.project.world_size import stated
from tvlint.run.repair.add_ignores import silencing
from tvlint.run.repair.fixes import LARGEST, File, Mentions
from tvlint.topology.topology import Topology, facts

T = TypeVar("T")

TYPING = Budget(file_cpu=10, file_wall=30, run_cpu=20, run_wall=60, memory=2048)
"""The budget of each answer to an editor, which waits for it."""
PROJECT_FILES = ("tvlint.toml", ".tvlint.toml")


@dataclass(frozen=True, slots=True)
class Buffers:
    """The texts that are open, by the paths of their files."""

    texts: Mapping[str, str]

    def contents(self) -> dict[str, bytes]:
        """Return the bytes that stand in the place of the files."""
        return {path: text.encode("utf-8", "replace") for path, text in self.texts.items()}


@dataclass(frozen=True, slots=True)
class Hover:
    """What is said of a place: Markdown of ours, and lines that hold text from files."""

    page: str
    lines: tuple[str, ...]


def within_budget(path: str, work: Callable[[], T], buffers: Buffers, limits: Mapping[str, float]) -> T | Problem:
    """Return what `work` gives about a text, within the limits, else those of the project that judges the text."""

    def run(steps: Steps) -> T | Problem:
        with instead(buffers.contents()):
            given = steps.do(path, lambda: _budget(path), "the project file")
        if isinstance(given, Problem):
            return given
        steps.set_budget(TYPING.with_limits({**given, **limits}))
        return steps.do(path, work, "the text")

    return value_of(run, path, TYPING.with_limits(limits))


def diagnose(path: str, buffers: Buffers, known: Mapping[str, Rule]) -> Report:
    """Return what is found in the text at `path`, without what the project excludes and what a baseline holds."""
    with instead(buffers.contents()):
        if os.path.basename(path) in PROJECT_FILES:
            return Report(problems=_project_problems(path))
        try:
            project = _project(path)
        except ProjectError as error:
            return Report(problems=error.problems)
        return _report(path, buffers, known, project)


def fixes_in(
    path: str, first: int, last: int, buffers: Buffers, known: Mapping[str, Rule]
) -> list[tuple[Finding, tuple[Fix, ...]]]:
    """Return the findings of the lines `first` to `last`, each with the fixes that hold, and the comment that silences it."""
    return [
        (finding, _fixes(path, finding, buffers, known))
        for finding in diagnose(path, buffers, known).findings
        if finding.location.path == path and (finding.location.line or 1) <= last
        if (finding.location.end_line or finding.location.line or 1) >= first
    ]


def _fixes(path: str, finding: Finding, buffers: Buffers, known: Mapping[str, Rule]) -> tuple[Fix, ...]:
    with instead(buffers.contents()):
        try:
            project = _project(path)
        except ProjectError:
            return ()
        file = File(path, Mentions((path, *buffers.texts)), Rules(_applying(project, known), known, project))
        silent = silencing(file, (finding,), "state the reason")
        comment = (Fix(f"ignore `{finding.rule}` here", silent),) if silent else ()
        return (*file.offered(finding), *comment)


def hover(path: str, line: int, column: int, buffers: Buffers, known: Mapping[str, Rule]) -> Hover | None:
    """Return what is known of a place: the rules that find something there, the setting, and what follows from all settings."""
    report = diagnose(path, buffers, known)
    here = [finding.rule for finding in report.findings if is_at(finding.location, line, column)]
    rules = [known[name] for name in here if name in known]
    with instead(buffers.contents()):
        try:
            project = _project(path)
        except ProjectError:
            project = Project(Path(path).parent)
        document = read_document(path, project.operators)
        if document is None or isinstance(document, Problem):
            return None
        setting = next(_settings_at(as_known(document, stated(path), project), path, line, column), None)
        if setting is None and not rules:
            return None
        found = [topology for topology in topologies(document, project.world_size, project) if isinstance(topology, Topology)]
    lines = [] if setting is None else [f"{setting[1].written} = {show(setting[1].value)}  ({setting[1].name})"]
    for topology in found[:1]:
        known_facts = {name: value for name, value in facts(topology).items() if not isinstance(value, Unknown) and value != ()}
        lines += ["", *(f"{name}: {show(value)}" for name, value in known_facts.items())]
    pages = dict.fromkeys(f"### {rule.name}\n\n{labelled(explanation_of(rule).strip())}" for rule in rules)
    return Hover("\n\n".join(pages), tuple(lines))


def is_at(place: Location, line: int, column: int) -> bool:
    """Return whether the place holds a column of a line; one without columns holds its whole lines."""
    first, last = place.line or 1, place.end_line or place.line or 1
    after = line > first or place.column is None or column >= place.column
    before = line < last or place.end_column is None or column <= place.end_column
    return first <= line <= last and after and before


def text_of(path: str, buffers: Buffers) -> Text | None:
    """Return the text of a file, as it is open or else on disk."""
    if path in buffers.texts:
        return Text(buffers.texts[path])
    try:
        return Text(content(path, LARGEST).decode("utf-8"))
    except (OSError, ValueError):
        return None


def _budget(path: str) -> Mapping[str, float]:
    try:
        return _project(path).budget
    except ProjectError:
        return {}


def _report(path: str, buffers: Buffers, known: Mapping[str, Rule], project: Project) -> Report:
    if excluded(path, project):
        return Report()
    if project.paths and not matches(path, project, project.paths) and "." not in project.paths:
        return Report()
    report = with_lines(check(Candidates((path,)), _applying(project, known), known, project)[0])
    if not project.baseline:
        return report
    from tvlint.run.silence.baseline import baselines, compare_all

    try:
        new = compare_all(report, baselines(project, ""), project).new
    except ProjectError as error:
        return Report(report.findings, problems=(*report.problems, *error.problems))
    return Report(new, problems=report.problems, checked=report.checked)


def _applying(project: Project, known: Mapping[str, Rule]) -> dict[str, Rule]:
    return {name: rule for name, rule in known.items() if name not in project.ignore and name in (project.select or known)}


def _project(path: str) -> Project:
    found = find(Path(path).parent)
    return Project(Path(path).parent) if found is None else judging(path, load(found, str(found)))


def _project_problems(path: str) -> tuple[Problem, ...]:
    try:
        load(Path(path), path)
    except ProjectError as error:
        return error.problems
    return ()


def _settings_at(
    configurations: list[Configuration], path: str, line: int, column: int
) -> Iterator[tuple[Configuration, Setting]]:
    for configuration in configurations:
        for setting in configuration.settings.values():
            for place in (setting.location, setting.name_location):
                if place.path == path and place.column is not None and is_at(place, line, column):
                    yield configuration, setting
