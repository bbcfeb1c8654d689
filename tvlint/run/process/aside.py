"""Working out values in a process of its own, while this process works out others."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable
from io import FileIO
from types import TracebackType
from typing import Generic, TypeVar

from tvlint.run.process.child import Child
from tvlint.run.process.worker import Done, Kept, Steps

T = TypeVar("T")


class Relay(Steps):
    """Steps of works that are done aside: what they keep is kept by the process that waits for them."""

    def __init__(self, to: Callable[[object], object]) -> None:
        super().__init__()
        self.to = to

    def keep(self, value: object) -> None:
        self.to(value)


class Aside(Generic[T]):
    """The values of `works`, worked out one after the other in a child process from now on.

    The child is ended when the block is left. The values come back as our own pickles of our own classes, and what the works
    have kept by the `relay` goes there when their values are asked for.
    """

    def __init__(self, *works: Callable[[], T], relay: Relay | None = None) -> None:
        self._works, self._relay = works, relay
        self._given = 0
        reading, writing = os.pipe()
        self._child = Child(lambda: _write(works, relay, writing))
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
            while True:
                entry: Kept | Done = pickle.load(self._answers)
                if isinstance(entry, Done):
                    self._given += 1
                    if self._given > place:
                        return entry.value  # type: ignore[return-value]
                elif self._given == place and self._relay is not None:
                    self._relay.keep(entry.value)
        except (EOFError, pickle.UnpicklingError):
            return self._works[place]()


def _write(works: Iterable[Callable[[], object]], relay: Relay | None, writing: int) -> int:
    with open(writing, "wb", buffering=0) as stream:
        if relay is not None:
            relay.to = lambda value: _send(Kept(value), stream)
        for work in works:
            _send(Done(work()), stream)
    return 0


def _send(entry: Kept | Done, stream: FileIO) -> None:
    answer = memoryview(pickle.dumps(entry, pickle.HIGHEST_PROTOCOL))
    while answer:
        answer = answer[stream.write(answer) :]


def pays_off(size: int) -> bool:
    """Return whether a file of `size` bytes is worth a process of its own, on this machine and in this process."""
    return size >= _WORTH_A_PROCESS and hasattr(os, "fork") and (os.cpu_count() or 1) >= 2


_WORTH_A_PROCESS = 64 << 10
