"""The command line: arguments in, reports out, an exit code."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence

from tvlint import __version__

_OBJECTS = 200_000
"""So many new objects come before the next collection: the modules of a short run are never garbage."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; nothing but a report ever goes to the standard output.

    As a program (no `arguments`) it ends at once on Ctrl-C: a handler in Python would have to wait for the C code that reads a
    large plan. It also ends without taking a plan of a million objects apart first, which takes seconds.
    """
    if arguments is None:
        gc.set_threshold(_OBJECTS)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _open_closed_streams()
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv in (["--version"], ["-V"]):
        print(f"tvlint {__version__}")
        return 0
    from importlib import import_module

    if arguments is not None:
        from tvlint.run.process.worker import Steps

        code: int = import_module("tvlint.cli.command").run(argv, Steps())
        return code
    from tvlint.run.process.budget import Budget
    from tvlint.run.process.supervisor import supervise

    code = supervise(lambda steps: import_module("tvlint.cli.command").run(argv, steps), Budget())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _open_closed_streams() -> None:
    """A stream that the caller has closed leads nowhere; Python would have None in its place."""
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
