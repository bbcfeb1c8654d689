"""The command line: arguments in, reports out, an exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from tvlint import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; nothing but a report ever goes to the standard output.

    As a program (no `arguments`) it ends at once on Ctrl-C: a handler in Python would have to wait for the C code that reads a
    large plan. It also ends without taking a plan of a million objects apart first, which takes seconds.
    """
    if arguments is None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _open_closed_streams()
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv in (["--version"], ["-V"]):
        print(f"tvlint {__version__}")
        return 0
    try:
        from tvlint.cli.arguments import parse

        options = parse(argv)
        code: int = options.run(options)
        sys.stdout.flush()
        if arguments is None:
            sys.stderr.flush()
            os._exit(code)
        return code
    except KeyboardInterrupt:
        from tvlint.run.exit_code import INTERRUPTED

        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        from tvlint.run.outputs import OutputError

        if isinstance(error, OutputError):
            return _unwritten(error)
        return _internal(error, "--traceback" in argv or bool(os.environ.get("TVLINT_DEBUG")))


def _open_closed_streams() -> None:
    """A stream that the caller has closed leads nowhere; Python would have None in its place."""
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _unwritten(error: Exception) -> int:
    """Say which output cannot be had."""
    from tvlint.run.exit_code import INPUT
    from tvlint.run.outputs import say

    say(f"tvlint: error: {error}")
    return INPUT


def _internal(error: Exception, traceback: bool) -> int:
    """Say that tvlint is at fault, and how to tell us."""
    from tvlint.run.exit_code import INTERNAL
    from tvlint.run.outputs import say

    if traceback:
        import traceback as module

        say(*(line for part in module.format_exception(error) for line in part.rstrip("\n").split("\n")))
    text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    help = "  help: tvlint is at fault; please report it, with what the same command says under `--traceback`"
    say(f"tvlint: internal error: {text}", help)
    return INTERNAL
