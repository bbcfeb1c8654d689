"""One command, from its arguments to its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tvlint.cli.arguments import parse
from tvlint.run.output.exit_code import INPUT, INTERNAL, INTERRUPTED
from tvlint.run.output.outputs import OutputError, say
from tvlint.run.process.budget import Budget
from tvlint.run.process.worker import Steps


def run(arguments: Sequence[str], steps: Steps) -> int:
    """Run the command and return its exit code; where it opens files of the user, it does so in these steps.

    A server has steps of its own, in a worker for each answer.
    """
    options = parse(list(arguments))
    if hasattr(options, "budget") and not hasattr(options, "serves"):
        steps.set_budget(Budget().with_limits(options.budget))
        options.steps = steps
    else:
        options.steps = Steps()
    try:
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OutputError as error:
        say(f"tvlint: error: {error}")
        return INPUT
    except Exception as error:
        if _is_nowhere():
            say("tvlint: error: the current folder does not exist any more", "  help: change to a folder that exists")
            return INPUT
        return _internal(error, options.traceback or bool(os.environ.get("TVLINT_DEBUG")))


def _is_nowhere() -> bool:
    """Return whether the current folder was removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _internal(error: Exception, with_traceback: bool) -> int:
    """Say that tvlint is at fault, and how to tell us."""
    if with_traceback:
        import traceback

        say(*(line for part in traceback.format_exception(error) for line in part.rstrip("\n").split("\n")))
    text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    help = "  help: tvlint is at fault; please report it, with what the same command says under `--traceback`"
    say(f"tvlint: internal error: {text}", help)
    return INTERNAL
