"""Bounds within which a reader runs code that is written in C and cannot be interrupted: time, memory and stack."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


def on_stack(run: Callable[[], object], stack: int) -> tuple[object] | BaseException:
    """Return what `run` returns, in a tuple, or what it raises; run on a stack of `stack` bytes.

    `MemoryError` when there is no room for such a stack.
    """
    import threading

    outcome: list[tuple[object] | BaseException] = []

    def work() -> None:
        try:
            outcome.append((run(),))
        except BaseException as error:
            outcome.append(error.with_traceback(None))

    before = threading.stack_size((stack + 0xFFFF) & ~0xFFFF)
    try:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
    except (RuntimeError, MemoryError):
        return MemoryError()
    finally:
        threading.stack_size(before)
    thread.join()
    return outcome[0] if outcome else MemoryError()


@contextmanager
def without_collection() -> Iterator[None]:
    """Keep the garbage collector from walking millions of objects that are all in use, also afterwards."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()
            gc.enable()


@contextmanager
def bounded_time(seconds: float) -> Iterator[None]:
    """Let the system end the process (`SIGVTALRM`) where the block takes more processor time than `seconds`.

    Only in a worker, which the system ends at the limit of its budget anyway: any other process is not ours to end.
    """
    import signal

    if not hasattr(signal, "setitimer") or not signal.getitimer(signal.ITIMER_PROF)[0]:
        yield
        return
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def limits_memory() -> bool:
    """Return whether `bounded_memory` has an effect on this system."""
    return _address_space() is not None


@contextmanager
def bounded_memory(growth: int) -> Iterator[None]:
    """Let the process grow by `growth` bytes and no further: what needs more gets a `MemoryError`."""
    used = _address_space()
    if used is None:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = used + growth
    for limit in (soft, hard):
        if limit != resource.RLIM_INFINITY:
            bound = min(bound, limit)
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space() -> int | None:
    """Return the bytes of address space in use, where the system tells and limits them."""
    if not sys.platform.startswith("linux"):
        return None
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm", encoding="ascii") as file:
        import resource

        return int(file.read().split()[0]) * resource.getpagesize()
    return None
