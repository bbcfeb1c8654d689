"""`tvlint completion`."""

from __future__ import annotations

import argparse

from tvlint.cli.arguments import build, fail
from tvlint.reporters.escape.terminal import terminal
from tvlint.run.output.exit_code import CLEAN
from tvlint.run.output.outputs import write_stdout


def run(options: argparse.Namespace) -> int:
    """Print the script that completes tvlint in a shell."""
    try:
        import shtab
    except ImportError:
        fail("the package `shtab` is not installed", "`pip install 'tvlint[completion]'`")
    parser, commands = build()
    for command in commands.values():
        for action in command._actions:
            if action.metavar in ("FILE", "PATH", "PLAN", "PARALLEL", "VERSION"):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    write_stdout(terminal(shtab.complete(parser, options.shell).split("\n")))
    return CLEAN
