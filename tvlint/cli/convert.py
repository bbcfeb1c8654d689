"""`tvlint convert`."""

from __future__ import annotations

import argparse
from importlib import import_module

from tvlint.cli.arguments import fail
from tvlint.cli.session import note
from tvlint.findings import Problem
from tvlint.run.exit_code import CLEAN, INPUT
from tvlint.run.outputs import OutputError, parse_outputs, write_file, write_stdout
from tvlint.run.reading import read_plan

_WRITERS = {"json": "plan_json", "text": "plan_text"}


def run(options: argparse.Namespace) -> int:
    """Write the plan in another format; exit 2 where the file holds none."""
    try:
        output = parse_outputs([options.output], tuple(_WRITERS))[0]
    except OutputError as error:
        fail(str(error), error.help)
    plan = read_plan(options.plan)
    if isinstance(plan, Problem):
        place = plan.location.path if plan.location.line is None else f"{plan.location.path}:{plan.location.line}"
        note(f"{place}: {plan.message}{f'; {plan.help}' if plan.help else ''}")
        return INPUT
    text: str = import_module(f"tvlint.reporters.{_WRITERS[output.format]}").write(plan)
    if not output.path:
        write_stdout(text)
        return CLEAN
    try:
        write_file(output.path, text)
    except OutputError as error:
        fail(str(error), error.help)
    return CLEAN
