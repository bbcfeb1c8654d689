"""Pickles, read without running them.

The C unpickler does the work, with every name of the file resolved to a class made here for this one load. Nothing from the
file is imported, looked up or evaluated (`inert_objects`). What a normal load would have called is kept in
`Loaded.calls`.

Hostile input ends in a `ReadError`. Memory is bounded by an address space limit around the load (where the system has one; a
scan of the opcodes elsewhere). Hashing happens in C, out of reach of any check: it recurses into nested tuples in time that
doubles with every level, and keys of one hash take time with their square. So the load runs on a stack large enough for the
deepest tuple that the file can hold, in the time that its size explains (`bounded_time`).
"""

from __future__ import annotations

import copyreg
import io
import pickle
import pickletools
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvlint.ir.location import Location
from tvlint.readers.document import ReadError
from tvlint.readers.sources.inert_objects import printable, said, stand_in
from tvlint.readers.sources.resource_limits import bounded_memory, bounded_time, limits_memory, on_stack, without_collection

_TUPLE_OPCODES = (b"\x85", b"\x86", b"\x87", b"t")
_FRAME_BYTES = 256
_SMALLEST_STACK = 16 << 20
_LARGEST_STACK = 2 << 30
_SMALLEST_BUDGET = 1 << 30
_BUDGET_PER_BYTE = 40
_SHORTEST_TIME = 3.0
_SECONDS_PER_BYTE = 0.5e-6
"""Six to ten times what the plans of large models take."""

_OLD_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg", "__main__": "__main__", "exceptions": "builtins"}

_ERRORS = (
    pickle.PickleError,
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    RuntimeError,
    SystemError,
    TypeError,
    ValueError,
    struct.error,
)
"""What the C unpickler raises on malformed input; `MemoryError` is distinguished."""


@dataclass(frozen=True, slots=True)
class Call:
    """The call that a normal load would make with a name.

    `how` is `called`, `built` without calling, `result called` where it calls what the name returned, and `read otherwise`
    where the call would give something else than is read here.
    """

    name: str
    how: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """The root object of a pickle, all global names in it and what a normal load would have called."""

    root: object
    names: tuple[str, ...]
    calls: tuple[Call, ...]


def looks_like_pickle(data: bytes) -> bool:
    """Return whether `data` begins as a binary pickle does (protocol 2 or later), or is an older one, which is text, as a
    whole.
    """
    if data[:1] == b"\x80":
        return len(data) > 2 and 2 <= data[1] <= 5
    try:
        names = sum(opcode.name in ("GLOBAL", "INST") for opcode, _, _ in pickletools.genops(data))
    except Exception:
        return False
    return names > 0


def load(data: bytes, path: str, records: tuple[str, ...] = ()) -> Loaded:
    """Return the content of the pickle `data`, all of it inert.

    Names that begin with one of `records` become `Record` classes, `collections.OrderedDict` an `InertDict`, numpy scalars
    plain numbers, all others `Opaque`. Raises `ReadError` for anything that is not one whole pickle.
    """
    if not data:
        raise ReadError("the file is empty", Location(path))
    depth = sum(map(data.count, _TUPLE_OPCODES))
    stack = max(_SMALLEST_STACK, depth * _FRAME_BYTES)
    if stack > _LARGEST_STACK:
        raise ReadError(f"{depth} tuples in one pickle are more than can be read safely", Location(path))
    if not limits_memory():
        _scan_sizes(data, path)
    unpickler = _InertUnpickler(io.BytesIO(data), records)
    seconds = _SHORTEST_TIME + _SECONDS_PER_BYTE * len(data)
    with without_collection(), _without_extensions(), bounded_memory(stack + _budget(data)), bounded_time(seconds):
        outcome = on_stack(unpickler.load, stack)
    if isinstance(outcome, MemoryError):
        raise ReadError(
            f"pickle of {len(data)} bytes needs more memory than {_budget(data) >> 20} MiB",
            Location(path),
            "it is corrupt or hostile; a plan of this size needs less",
        )
    if isinstance(outcome, _ERRORS):
        raise ReadError(f"not a readable pickle: {said(outcome)}", Location(path, pointer=f"byte {unpickler.position()}"))
    if isinstance(outcome, BaseException):
        raise outcome
    rest = len(data) - unpickler.position()
    if rest:
        raise ReadError(f"{rest} bytes follow the end of the pickle", Location(path, pointer=f"byte {unpickler.position()}"))
    calls = tuple(Call(name, how) for name, how in unpickler.noted)
    return Loaded(outcome[0], tuple(unpickler.classes), calls)


class _InertUnpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, records: tuple[str, ...]) -> None:
        super().__init__(stream)
        self.stream = stream
        self.records = records
        self.classes: dict[str, type] = {}
        self.noted: dict[tuple[str, str], None] = {}

    def position(self) -> int:
        return self.stream.tell()

    def find_class(self, module: str, name: str) -> Any:
        full = f"{_OLD_MODULES.get(module, module)}.{name}"
        found = self.classes.get(full)
        if found is None:
            if len(full) > 1000:
                raise pickle.UnpicklingError(f"a global name of {len(full)} characters")
            found = self.classes[full] = stand_in(
                printable(full), self.records, self._note, partial(self.find_class, "builtins", "slice")
            )
        return found

    def _note(self, name: str, how: str) -> None:
        self.noted[name, how] = None


@contextmanager
def _without_extensions() -> Iterator[None]:
    """Hide the process-wide registry of extension codes, so that EXT opcodes are errors."""
    registry: dict[Any, Any] = copyreg._inverted_registry  # type: ignore[attr-defined]
    cache: dict[Any, Any] = copyreg._extension_cache  # type: ignore[attr-defined]
    held = dict(registry), dict(cache)
    registry.clear()
    cache.clear()
    try:
        yield
    finally:
        registry.update(held[0])
        cache.update(held[1])


def _budget(data: bytes) -> int:
    return max(_SMALLEST_BUDGET, _BUDGET_PER_BYTE * len(data))


def _scan_sizes(data: bytes, path: str) -> None:
    """Refuse a pickle whose opcodes ask for more than the file can hold."""
    try:
        for opcode, argument, position in pickletools.genops(data):
            if "PUT" in opcode.name and isinstance(argument, int) and argument > len(data):
                raise ReadError(f"memo index {argument} is out of range", Location(path, pointer=f"byte {position}"))
    except ReadError:
        raise
    except Exception as error:
        raise ReadError(f"not a readable pickle: {said(error)}", Location(path)) from None
