"""Working out a value in a process of its own, while this process works out another."""

from __future__ import annotations

import os
import pickle
import signal
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from tvlint.readers.sources.resource_limits import expendable

T = TypeVar("T")


class Aside(Generic[T]):
    """The value of `work`, worked out in a child process from now on.

    The child is killed when the block is left, so that an interrupt leaves no process behind. The value comes back as our own
    pickle of our own classes.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._child = os.fork()
        if self._child == 0:
            os.close(reading)
            _answer(work, writing)
        os.close(writing)
        self._answer = reading

    def __enter__(self) -> Aside[T]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._answer)
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)

    def value(self) -> T:
        """The value, as soon as it is there; worked out here where the child did not come to an end."""
        with open(self._answer, "rb", closefd=False) as stream:
            answer = stream.read()
        try:
            found: T = pickle.loads(answer)
        except (EOFError, pickle.UnpicklingError):
            return self._work()
        return found


def _answer(work: Callable[[], object], writing: int) -> None:
    """In the child: write the value and end, without anything that this copy of the parent would do at its end."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        expendable()
        answer = pickle.dumps(work(), pickle.HIGHEST_PROTOCOL)
        with open(writing, "wb") as stream:
            stream.write(answer)
    finally:
        os._exit(0)


def pays_off(size: int) -> bool:
    """Whether a file of `size` bytes is worth a process of its own, on this machine and in this process."""
    if size < _WORTH_A_PROCESS or not hasattr(os, "fork") or (os.cpu_count() or 1) < 2:
        return False
    from multiprocessing import parent_process

    return parent_process() is None


def saves_a_trial(size: int) -> bool:
    """Whether a file of `size` bytes, packed or not, comes sooner from a process of its own than by reading it here.

    Here it may be loaded twice, first in a process that may die of it; its plan is small enough to be handed over.
    """
    return size <= _HANDED_OVER and pays_off(size)


_WORTH_A_PROCESS = 64 << 10
_HANDED_OVER = 768 << 10
