"""`tvlint capture`."""

from __future__ import annotations

import argparse
import os
import re

from tvlint.cli.arguments import fail
from tvlint.cli.session import note, unreadable
from tvlint.findings import Problem
from tvlint.ir.location import Location
from tvlint.run.exit_code import CLEAN


def run(options: argparse.Namespace) -> int:
    """Run the program, record one training step, and write the capture; exit 2 where it does not come to the end of one."""
    from tvlint.capture.launch import LaunchError, parse_launch
    from tvlint.capture.processes import Failure, capture

    if not re.fullmatch(r"[A-Za-z0-9_.-]+", options.name) or options.name.startswith("."):
        fail(f"`--name {options.name}` is no name of a file", "use letters, digits, `-`, `_` and `.`")
    words = options.program[1:] if options.program[:1] == ["--"] else options.program
    try:
        launch = parse_launch(words)
        data = capture(launch, float(options.timeout))
    except LaunchError as error:
        fail(str(error), error.help)
    except Failure as failure:
        return unreadable(Problem(str(failure), Location(failure.path, failure.line), failure.help))
    path = os.path.join(options.output, f"{options.name}.capture.jsonl.gz")
    try:
        os.makedirs(options.output, exist_ok=True)
        with open(f"{path}.new", "wb") as file:
            file.write(data)
        os.replace(f"{path}.new", path)
    except OSError as error:
        fail(f"cannot write `{path}`: {(error.strerror or 'unknown reason').lower()}")
    note(f"one training step of {launch.ranks} ranks is recorded in `{path}`")
    return CLEAN
