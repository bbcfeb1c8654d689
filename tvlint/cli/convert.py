"""`tvlint convert`."""

from __future__ import annotations

import argparse
from importlib import import_module

from tvlint.cli.session import outputs, unreadable, write
from tvlint.findings import Problem
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.terminal import terminal
from tvlint.run.output.exit_code import CLEAN
from tvlint.run.output.outputs import Output
from tvlint.run.project.reading import read_plan


def run(options: argparse.Namespace) -> int:
    """Write the plan in another format; exit 2 where the file holds none."""
    wanted = outputs(options)
    found = options.steps.do(options.plan, lambda: _converted(options.plan, wanted))
    if isinstance(found, Problem):
        return unreadable(found)
    write(found)
    return CLEAN


def _converted(path: str, wanted: tuple[Output, ...]) -> dict[Output, Escaped] | Problem:
    plan = read_plan(path)
    if isinstance(plan, Problem):
        return plan

    def written(output: Output) -> Escaped:
        text: str = import_module(f"tvlint.reporters.plan.{output.format}").write(plan)
        return terminal(text.removesuffix("\n").split("\n"))

    return {output: written(output) for output in wanted}
