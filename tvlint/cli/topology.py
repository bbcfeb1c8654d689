"""`tvlint topology`."""

from __future__ import annotations

import argparse
import shutil
import sys

from tvlint import __version__
from tvlint.cli.arguments import fail
from tvlint.cli.session import colored, note
from tvlint.findings import Problem
from tvlint.ir.location import Location
from tvlint.readers.document import Document, ReadError
from tvlint.reporters.topology_text import write as write_text
from tvlint.run.exit_code import CLEAN, INPUT, NOTHING
from tvlint.run.outputs import Output, OutputError, parse_outputs, write_file, write_stdout
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
    found = topologies(document, options.world_size)
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
