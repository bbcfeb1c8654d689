"""A process forked from this one, which ends when this one does."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress

from tvlint.ir.values import dataclass


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a process: its exit code, negative for a signal, and its processor seconds."""

    code: int
    seconds: float


class Child:
    """A forked process that does `work` and exits with the code that it returns.

    It is ended where this process ends or lets go of it, whichever way: on Linux the system tells it at once that the pipe
    between the two is closed, elsewhere it may go on to the end of its work. It has as much processor time as this process has
    left, dumps no core, and handles no signal that means that something is wrong.
    """

    def __init__(self, work: Callable[[], int]) -> None:
        parent = os.getpid()
        reading, self._tie = os.pipe()
        left, _ = signal.getitimer(signal.ITIMER_PROF)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._process = os.fork()
        if self._process == 0:
            try:
                os.close(self._tie)
                _end_with(parent, reading)
                signal.setitimer(signal.ITIMER_PROF, left)
                _run(work)
            finally:
                os._exit(_FAILED)
        os.close(reading)

    def wait(self) -> Ended:
        """Wait for the end of the process."""
        _, status, usage = os.wait4(self._process, 0)
        os.close(self._tie)
        self._process = 0
        return Ended(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime)

    def end(self) -> None:
        """End the process now, if it has not come to its end."""
        if self._process:
            os.kill(self._process, signal.SIGKILL)
            self.wait()


def _end_with(parent: int, reading: int) -> None:
    """Let the end of the parent, which closes the other end of the pipe, end this process."""
    import fcntl
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    for number in (*_WRONG, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(reading, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(reading, fcntl.F_SETFL, fcntl.fcntl(reading, fcntl.F_GETFL) | os.O_ASYNC)
    if os.getppid() != parent:
        os._exit(_FAILED)


def _run(work: Callable[[], int]) -> None:
    """Do the work and exit, without anything that this copy of the parent would do at its end."""
    code = _FAILED
    try:
        code = work()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else _FAILED
    except Exception:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.flush()
        os._exit(code)


_FAILED = 70
OUT_OF_MEMORY = 71
"""The exit code of a process that has no memory left to say so."""
_WRONG = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL) if sys.platform != "win32" else ()
