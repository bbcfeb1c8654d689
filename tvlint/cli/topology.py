"""`tvlint topology`."""

from __future__ import annotations

import argparse
from functools import partial

from tvlint import __version__
from tvlint.cli.session import bare_project, colored, judging_one, note, outputs, refused, width, write
from tvlint.findings import Problem
from tvlint.ir.location import Location
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.text.topology import write as write_text
from tvlint.run.judge.topology import TopologyOf, topologies
from tvlint.run.output.exit_code import CLEAN, NOTHING
from tvlint.run.output.outputs import Output
from tvlint.run.project.project_file import Project, ProjectError
from tvlint.run.project.reading import read_document
from tvlint.topology.known import Accelerator
from tvlint.topology.of_plan import PlanTopology
from tvlint.topology.topology import Topology


def run(options: argparse.Namespace) -> int:
    """Say what follows from every configuration of a file."""
    wanted = outputs(options)
    try:
        settings = judging_one(options, bare_project(options), None, options.file)
    except ProjectError as error:
        return refused(options, wanted, *error.problems)
    found = options.steps.do(options.file, lambda: _found(options, settings, wanted))
    if isinstance(found, Problem):
        return refused(options, wanted, found)
    topologies, written = found
    write(written)
    if topologies:
        return CLEAN
    note(f"{options.file}: no parallel configuration or plan in it")
    return NOTHING


def _found(
    options: argparse.Namespace, settings: Project, wanted: tuple[Output, ...]
) -> tuple[int, dict[Output, Escaped]] | Problem:
    """Return of how many configurations and plans something follows, and that as each output has it: nothing but an empty
    list for programs where there are none."""
    document = read_document(options.file)
    if isinstance(document, Problem):
        return document
    if document is None:
        return Problem("nothing that tvlint reads", Location(options.file))
    found = topologies(document, options.world_size, settings, _fitted(options.gpu))
    return len(found), {output: _written(found, output, options) for output in wanted if found or output.format == "json"}


def _fitted(accelerator: Accelerator | None) -> TopologyOf | None:
    if accelerator is None:
        return None
    from tvlint.run.judge.fitting import fitted

    return partial(fitted, accelerator=accelerator)


def _written(found: tuple[Topology | PlanTopology, ...], output: Output, options: argparse.Namespace) -> Escaped:
    if output.format == "json":
        from tvlint.reporters.json.topology import write as write_json

        return write_json(found, options.rank)
    if output.format == "html":
        from tvlint.reporters.html.topology import write as write_html

        return write_html(found, __version__, options.rank)
    return write_text(found, width(60, 160), colored(options.color) and not output.path, options.rank)
