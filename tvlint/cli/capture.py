"""`tvlint capture`."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence

from tvlint.cli.arguments import fail
from tvlint.cli.session import note, unreadable, write
from tvlint.findings import Problem
from tvlint.ir.location import Location
from tvlint.reporters.escape.terminal import terminal
from tvlint.run.exit_code import CLEAN
from tvlint.run.outputs import Output, OutputError, write_capture


def run(options: argparse.Namespace) -> int:
    """Run the program, record one training step, and write the capture and its plan.

    Exit 2 where the program does not come to the end of a step, or no plan is what it computed.
    """
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", options.name) or options.name.startswith("."):
        fail(f"`--name {options.name}` is no name of a file", "use letters, digits, `-`, `_` and `.`")
    words = options.program[1:] if options.program[:1] == ["--"] else options.program
    path = capture_to(words, options.output, options.name, float(options.timeout))
    if isinstance(path, Problem):
        return unreadable(path)
    note(f"one training step is recorded in `{path}`")
    return _write_plan(path, options.reference)


def capture_to(words: Sequence[str], folder: str, name: str, seconds: float) -> str | Problem:
    """Run a program and write its capture; return the path, or why there is none."""
    from tvlint.capture.launch import LaunchError, parse_launch
    from tvlint.capture.processes import Failure, capture

    try:
        data = capture(parse_launch(words), seconds)
    except LaunchError as error:
        fail(str(error), error.help)
    except Failure as failure:
        return Problem(str(failure), Location(failure.path, failure.line), failure.help)
    path = os.path.join(folder, f"{name}.capture.jsonl.gz")
    try:
        write_capture(path, data)
    except OutputError as error:
        fail(str(error), error.help)
    return path


def _write_plan(path: str, reference: str) -> int:
    """Write the plan beside its capture, where its replay gives what the program computed."""
    from tvlint.reporters.plan import json as plan_json
    from tvlint.run.captures import read_captures, read_single, replayed

    single = read_single(path) if not reference else None
    if single is None and not reference:
        note("a plan of several ranks is written with the single-device capture: `--reference CAPTURE`")
        return CLEAN
    found = read_captures(path, reference) if single is None else single
    if isinstance(found, Problem):
        return unreadable(found)
    recorded = found[0] if isinstance(found, tuple) else found
    own = replayed(recorded)
    if own.problem:
        return unreadable(Problem(f"the plan {own.problem}", own.location or Location(path), "the capture is kept; no plan is"))
    target = path.removesuffix(".capture.jsonl.gz") + ".plan.json"
    write({Output("json", target): terminal(plan_json.write(recorded.plan).removesuffix("\n").split("\n"))})
    note(f"its plan is `{target}`: {own.compared} gradients agree with the program")
    return CLEAN
