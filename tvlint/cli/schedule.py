"""`tvlint schedule`."""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import replace

from tvlint import __version__
from tvlint.analyses.schedule_facts import ScheduleFacts
from tvlint.analyses.schedule_summary import Summary, summary
from tvlint.cli.arguments import fail
from tvlint.cli.session import colored, deliver, note, project
from tvlint.findings import Problem, Report, Severity
from tvlint.readers.document import Document, ReadError
from tvlint.reporters import schedule_html, schedule_json, schedule_text
from tvlint.rulebook.pages import load_rules
from tvlint.run.check import check
from tvlint.run.discovery import Candidates
from tvlint.run.exit_code import INPUT, exit_code
from tvlint.run.outputs import Output, OutputError, parse_outputs, write_file, write_stdout
from tvlint.run.project import ProjectError

FORMATS = ("text", "json", "html")


def run(options: argparse.Namespace) -> int:
    """Say what the schedule is and draw it, check it, and give the exit code of the check."""
    try:
        outputs = parse_outputs(options.output, FORMATS) or (Output("text"),)
    except OutputError as error:
        fail(str(error), error.help)
    rules = load_rules()
    try:
        settings = project(options, rules)
    except ProjectError as error:
        deliver(Report(problems=error.problems), (Output("text"),), options, rules)
        return INPUT
    if options.budget is not None:
        settings = replace(settings, activation_budget=options.budget)
    document = _read(options.file)
    if isinstance(document, Problem):
        place = document.location.path if document.location.line is None else f"{options.file}:{document.location.line}"
        note(f"{place}: {document.message}")
        return INPUT
    assert document.schedule is not None
    report, _ = check(Candidates((options.file,), frozenset({options.file})), rules, rules, settings)
    drawn = summary(ScheduleFacts(document.schedule, settings.activation_budget))
    for output in sorted(outputs, key=lambda output: not output.path):
        text = _written(drawn, report, output, options)
        try:
            write_file(output.path, text) if output.path else write_stdout(text)
        except OutputError as error:
            fail(str(error), error.help)
    _mention(report, options.file)
    return exit_code(report, settings.fail_on)


def _read(path: str) -> Document | Problem:
    from tvlint.ir.location import Location
    from tvlint.readers.read import read

    try:
        document = read(path)
    except ReadError as error:
        return error.problem
    if document is None or document.schedule is None:
        return Problem("not a pipeline schedule: no CSV with a row a rank and an action a cell", Location(path))
    return document


def _written(drawn: Summary, report: Report, output: Output, options: argparse.Namespace) -> str:
    if output.format == "json":
        return schedule_json.write(drawn)
    if output.format == "html":
        return schedule_html.write(drawn, report.findings, __version__)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 160
    return schedule_text.write(drawn, width, colored(options.color) and not output.path)


def _mention(report: Report, path: str) -> None:
    errors = sum(finding.severity is Severity.ERROR for finding in report.findings)
    others = len(report.findings) - errors
    if errors or others:
        note(f"{errors} errors and {others} warnings; `tvlint check {path}` shows them")
