"""Working out a value in a process of its own, while this process works out another."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from tvlint.run.child import Child

T = TypeVar("T")


class Aside(Generic[T]):
    """The value of `work`, worked out in a child process from now on.

    The child is ended when the block is left. The value comes back as our own pickle of our own classes.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._answer, writing = os.pipe()
        self._child = Child(lambda: _write(work, writing))
        os.close(writing)

    def __enter__(self) -> Aside[T]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._answer)
        self._child.end()

    def value(self) -> T:
        """Return the value, as soon as it is there; worked out here where the child did not come to an end."""
        with open(self._answer, "rb", closefd=False) as stream:
            answer = stream.read()
        try:
            found: T = pickle.loads(answer)
        except (EOFError, pickle.UnpicklingError):
            return self._work()
        return found


def _write(work: Callable[[], object], writing: int) -> int:
    answer = pickle.dumps(work(), pickle.HIGHEST_PROTOCOL)
    with open(writing, "wb") as stream:
        stream.write(answer)
    return 0


def pays_off(size: int) -> bool:
    """Return whether a file of `size` bytes is worth a process of its own, on this machine and in this process."""
    return size >= _WORTH_A_PROCESS and hasattr(os, "fork") and (os.cpu_count() or 1) >= 2


_WORTH_A_PROCESS = 64 << 10
