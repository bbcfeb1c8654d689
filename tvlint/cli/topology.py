"""`tvlint topology`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from tvlint import __version__
from tvlint.cli.arguments import fail
from tvlint.cli.session import colored, deliver, note
from tvlint.findings import Problem, Report
from tvlint.ir.location import Location
from tvlint.readers.document import Document, ReadError
from tvlint.reporters.topology_text import write as write_text
from tvlint.run.discovery import shown
from tvlint.run.exit_code import CLEAN, INPUT, NOTHING
from tvlint.run.outputs import Output, OutputError, parse_outputs, write_file, write_stdout
from tvlint.run.project import Project, ProjectError, find, load
from tvlint.run.topology import topologies
from tvlint.topology.of_plan import PlanTopology
from tvlint.topology.topology import Topology

FORMATS = ("text", "json", "html")


def run(options: argparse.Namespace) -> int:
    """Say what follows from every configuration of a file."""
    try:
        outputs = parse_outputs(options.output, FORMATS) or (Output("text"),)
    except OutputError as error:
        fail(str(error), error.help)
    document = _read(options.file)
    if isinstance(document, Problem):
        place = document.location.path if document.location.line is None else f"{options.file}:{document.location.line}"
        note(f"{place}: {document.message}")
        return INPUT
    try:
        found = topologies(document, options.world_size, _project(options))
    except ProjectError as error:
        deliver(Report(problems=error.problems), (Output("text"),), options, {})
        return INPUT
    if not found:
        note(f"{options.file}: no parallel configuration or plan in it")
        return NOTHING
    for output in sorted(outputs, key=lambda output: not output.path):
        text = _written(found, output, options)
        try:
            write_file(output.path, text) if output.path else write_stdout(text)
        except OutputError as error:
            fail(str(error), error.help)
    return CLEAN


def _project(options: argparse.Namespace) -> Project:
    """The project file that applies; only what it says of the world and of frameworks matters here, not its rules."""
    if options.config and not os.path.isfile(options.config):
        fail(f"no project file `{options.config}`")
    path = Path(options.config).absolute() if options.config else find(Path.cwd())
    return Project(Path.cwd()) if path is None else load(path, shown(path))


def _read(path: str) -> Document | Problem:
    from tvlint.readers.read import read

    try:
        document = read(path)
    except ReadError as error:
        return error.problem
    return document or Problem("nothing that tvlint reads", Location(path))


def _written(found: tuple[Topology | PlanTopology, ...], output: Output, options: argparse.Namespace) -> str:
    if output.format == "json":
        from tvlint.reporters.topology_json import write as write_json

        return write_json(found, options.rank)
    if output.format == "html":
        from tvlint.reporters.topology_html import write as write_html

        return write_html(found, __version__, options.rank)
    width = max(60, min(shutil.get_terminal_size().columns, 160)) if sys.stdout.isatty() else 100
    return write_text(found, width, colored(options.color) and not output.path, options.rank)
