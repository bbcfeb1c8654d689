"""`tvlint topology`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tvlint import __version__
from tvlint.cli.session import colored, note, outputs, project_path, unreadable, width, write
from tvlint.findings import Problem
from tvlint.ir.location import Location
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.text.topology import write as write_text
from tvlint.run.discovery import shown
from tvlint.run.exit_code import CLEAN, NOTHING
from tvlint.run.outputs import Output
from tvlint.run.project import Project, ProjectError, load
from tvlint.run.reading import read_document
from tvlint.run.topology import topologies
from tvlint.topology.of_plan import PlanTopology
from tvlint.topology.topology import Topology


def run(options: argparse.Namespace) -> int:
    """Say what follows from every configuration of a file."""
    wanted = outputs(options)
    document = read_document(options.file)
    if isinstance(document, Problem):
        return unreadable(document)
    if document is None:
        return unreadable(Problem("nothing that tvlint reads", Location(options.file)))
    try:
        found = topologies(document, options.world_size, _project(options))
    except ProjectError as error:
        return unreadable(*error.problems)
    if not found:
        note(f"{options.file}: no parallel configuration or plan in it")
        return NOTHING
    write(wanted, lambda output: _written(found, output, options))
    return CLEAN


def _project(options: argparse.Namespace) -> Project:
    """The project file that applies; only what it says of the world and of frameworks matters here, not its rules."""
    path = project_path(options)
    return Project(Path.cwd()) if path is None else load(path, shown(path))


def _written(found: tuple[Topology | PlanTopology, ...], output: Output, options: argparse.Namespace) -> Escaped:
    if output.format == "json":
        from tvlint.reporters.json.topology import write as write_json

        return write_json(found, options.rank)
    if output.format == "html":
        from tvlint.reporters.html.topology import write as write_html

        return write_html(found, __version__, options.rank)
    return write_text(found, width(60, 160), colored(options.color) and not output.path, options.rank)
