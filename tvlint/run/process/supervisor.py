"""The process that waits for the one that does the work of a run, and starts another where that is ended at its budget.

It imports next to nothing: whatever it holds is copied for the worker, which is forked from it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from tvlint.run.process.budget import Budget
from tvlint.run.process.child import OUT_OF_MEMORY, Child

if TYPE_CHECKING:
    from tvlint.findings import Problem
    from tvlint.run.process.worker import Steps

_FROM_OUTSIDE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE) if sys.platform != "win32" else ()


def supervise(command: Callable[[Steps], int], budget: Budget) -> int:
    """Run the command in a worker, and again in another one from where that was ended; return its exit code.

    Only where processes cannot be forked (Windows) the command runs here, and no budget is kept.
    """
    if not hasattr(os, "fork"):
        from tvlint.run.process.worker import Steps

        return command(Steps())
    ended = supervised(command, budget, file_without_name())
    if isinstance(ended, int):
        return ended
    from tvlint.run.output.outputs import say

    say(f"tvlint: error: {ended.message}")
    return 2


def supervised(command: Callable[[Steps], int], budget: Budget, journal: BinaryIO) -> int | Problem:
    """Return the exit code of the command, or that no worker comes further than the last one."""
    started, spent, death, size = time.monotonic(), 0.0, 0, -1
    while True:
        ended = Child(partial(_work, command, budget, journal, (death, spent, started))).wait()
        if ended.code >= 0 and ended.code != OUT_OF_MEMORY:
            return ended.code
        if -ended.code in _FROM_OUTSIDE:
            signal.signal(-ended.code, signal.SIG_DFL)
            os.kill(os.getpid(), -ended.code)
        from tvlint.run.process.worker import Journal, of_the_run

        death, spent, before, size = ended.code, spent + ended.seconds, size, os.fstat(journal.fileno()).st_size
        if size <= before or not Journal(journal).is_open():
            return of_the_run(death)


def _work(command: Callable[[Steps], int], budget: Budget, journal: BinaryIO, past: tuple[int, float, float]) -> int:
    from tvlint.run.process.worker import Journal, Past, Worker

    return command(Worker(Journal(journal), budget, Past(*past)))


def file_without_name() -> BinaryIO:
    """Return a new file that no other process can open."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("tvlint"), "w+b")
    import tempfile

    handle, name = tempfile.mkstemp()
    os.unlink(name)
    return open(handle, "w+b")
