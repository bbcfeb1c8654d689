"""`tvlint schedule`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tvlint import __version__
from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.summary import Summary, summary
from tvlint.cli.session import colored, judging_one, note, outputs, project, refused, width, write
from tvlint.findings import Problem, Report
from tvlint.ir.location import Location
from tvlint.ir.schedule import Schedule
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.html import schedule as schedule_html
from tvlint.reporters.json import schedule as schedule_json
from tvlint.reporters.text import schedule as schedule_text
from tvlint.reporters.text import totals as tally
from tvlint.rule import Rule
from tvlint.rulebook.pages import load_rules
from tvlint.run.judge.check import check
from tvlint.run.output.exit_code import exit_code
from tvlint.run.output.outputs import Output
from tvlint.run.project.discovery import Candidates
from tvlint.run.project.project_file import Project, ProjectError
from tvlint.run.project.reading import read_document


def run(options: argparse.Namespace) -> int:
    """Say what the schedule is and draw it, check it, and give the exit code of the check."""
    wanted = outputs(options)
    rules = load_rules()
    try:
        settings = judging_one(options, project(options, rules), rules, options.file)
    except ProjectError as error:
        return refused(options, wanted, *error.problems)
    if options.activation_budget is not None:
        settings = replace(settings, activation_budget=options.activation_budget)
    found = options.steps.do(options.file, lambda: _judged(options, settings, rules, wanted))
    if isinstance(found, Problem):
        return refused(options, wanted, found)
    report, text = found
    write(text)
    _mention(report, options)
    return exit_code(report, settings.fail_on)


def _judged(
    options: argparse.Namespace, settings: Project, rules: Mapping[str, Rule], wanted: tuple[Output, ...]
) -> tuple[Report, dict[Output, Escaped]] | Problem:
    """Return the report on the schedule, and its drawing as each output has it."""
    schedule = _read(options.file)
    if isinstance(schedule, Problem):
        return schedule
    report, _ = check(Candidates((options.file,), frozenset({options.file})), rules, rules, settings)
    drawn = summary(ScheduleFacts(schedule, settings.activation_budget))
    return report, {output: _written(drawn, report, output, options) for output in wanted}


def _read(path: str) -> Schedule | Problem:
    document = read_document(path)
    if isinstance(document, Problem):
        return document
    if document is None or document.schedule is None:
        return Problem("not a pipeline schedule: no CSV with a row a rank and an action a cell", Location(path))
    return document.schedule


def _written(drawn: Summary, report: Report, output: Output, options: argparse.Namespace) -> Escaped:
    if output.format == "json":
        return schedule_json.write(drawn, report.findings, Path.cwd())
    if output.format == "html":
        return schedule_html.write(drawn, report.findings, __version__)
    return schedule_text.write(drawn, width(40, 1000, 160), colored(options.color) and not output.path)


def _mention(report: Report, options: argparse.Namespace) -> None:
    """Say that there are findings, and those that no other command gives."""
    if not report.findings:
        return
    note(f"{tally.summary(report)}; `tvlint check {options.file}` shows them")
    for finding in report.findings if options.activation_budget is not None else ():
        if finding.rule == "schedule-over-activation-budget":
            note(f"{finding.severity.value}: {finding.message} [{finding.rule}]")
