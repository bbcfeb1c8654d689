"""Working out values in a process of its own, while this process works out others."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Generic, TypeVar

from tvlint.run.process.child import Child

T = TypeVar("T")


class Aside(Generic[T]):
    """The values of `works`, worked out one after the other in a child process from now on.

    The child is ended when the block is left. The values come back as our own pickles of our own classes.
    """

    def __init__(self, *works: Callable[[], T]) -> None:
        self._works = works
        self._given = 0
        reading, writing = os.pipe()
        self._child = Child(lambda: _write(works, writing))
        os.close(writing)
        self._answers = open(reading, "rb")  # noqa: SIM115 - open until the block is left

    def __enter__(self) -> Aside[T]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._answers.close()
        self._child.end()

    def value(self, place: int = 0) -> T:
        """Return the value of the work at `place`, as soon as it is there; worked out here where the child did not come to it.

        Asked for in order, where works may be left out; one that was asked for before is worked out again, here.
        """
        if place < self._given:
            return self._works[place]()
        try:
            for _ in range(self._given, place + 1):
                found: T = pickle.load(self._answers)
        except (EOFError, pickle.UnpicklingError):
            return self._works[place]()
        self._given = place + 1
        return found


def _write(works: Iterable[Callable[[], object]], writing: int) -> int:
    with open(writing, "wb", buffering=0) as stream:
        for work in works:
            answer = memoryview(pickle.dumps(work(), pickle.HIGHEST_PROTOCOL))
            while answer:
                answer = answer[stream.write(answer) :]
    return 0


def pays_off(size: int) -> bool:
    """Return whether a file of `size` bytes is worth a process of its own, on this machine and in this process."""
    return size >= _WORTH_A_PROCESS and hasattr(os, "fork") and (os.cpu_count() or 1) >= 2


_WORTH_A_PROCESS = 64 << 10
