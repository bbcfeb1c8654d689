"""Pickles, read without running them.

The C unpickler does the work, with every name of the file resolved to a class made here for this one load. Nothing from the
file is imported, looked up or evaluated: classes become `Record`s (attributes in `__dict__`, no methods), every other name an
`Opaque` that remembers what it was called with. The classes refuse to be changed, so that a `BUILD` on a class cannot reach
another record. What a normal load would have called is kept in `Loaded.calls`.

Hostile input ends in a `ReadError`. Memory is bounded by an address space limit around the load (where the system has one; a
scan of the opcodes elsewhere). Hashing nested tuples recurses in C and takes time that doubles with every level, out of reach
of any check: the load runs on a stack large enough for the deepest tuple that the file can hold, and a file of up to 16 MiB is
first loaded by a child process with limited time.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import pickletools
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvlint.ir.location import Location
from tvlint.readers.bounds import bounded_memory, limits_memory, on_stack, trial, without_collection
from tvlint.readers.document import ReadError

_TUPLE_OPCODES = (b"\x85", b"\x86", b"\x87", b"t")
_FRAME_BYTES = 256
_SMALLEST_STACK = 16 << 20
_LARGEST_STACK = 2 << 30
_TRIAL_BYTES = 16 << 20
_TRIAL_SECONDS = 5
_SMALLEST_BUDGET = 1 << 30
_BUDGET_PER_BYTE = 40

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
"""What the C unpickler raises on malformed input; `MemoryError` is told apart."""


class _Sealed(type):
    """The class of all stand-in classes: nothing in a file can change one, and calling one is noted, not done."""

    def __setattr__(cls, name: str, value: object) -> None:
        raise TypeError("a pickle sets an attribute of a class")

    def __delattr__(cls, name: str) -> None:
        raise TypeError("a pickle deletes an attribute of a class")

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.tv_called(args)  # type: ignore[attr-defined]


class Record(metaclass=_Sealed):
    """An object of a class that the reader knows; its attributes are in `__dict__`."""

    __slots__ = ("__dict__",)
    tv_name = ""
    tv_kind = ""

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Take any arguments, as `object.__new__` then does."""


class Opaque(metaclass=_Sealed):
    """Anything else that the file names: built, called or filled, it only remembers."""

    __slots__ = ("__dict__", "tv_args", "tv_state")
    tv_name = ""
    tv_kind = ""
    tv_noted: Callable[[str, str], None]

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Take any arguments, as `object.__new__` then does."""

    def __new__(cls, *args: object, **kwargs: object) -> Opaque:
        self = object.__new__(cls)
        object.__setattr__(self, "tv_args", args)
        object.__setattr__(self, "tv_state", None)
        cls.tv_noted(cls.tv_name, "built")
        return self

    def __call__(self, *args: object, **kwargs: object) -> Opaque:
        cls = type(self)
        looked_up = _looked_up(self) if cls.tv_name == "builtins.getattr" else ()
        for name in looked_up:
            cls.tv_noted(name, "called")
        if not looked_up:
            cls.tv_noted(cls.tv_name, "result called")
        return self

    def __setstate__(self, state: object) -> None:
        object.__setattr__(self, "tv_state", state)

    def append(self, item: object) -> None:
        """Take an item of a list-like object and forget it."""

    def extend(self, items: object) -> None:
        """Take items of a list-like object and forget them."""

    def add(self, item: object) -> None:
        """Take an item of a set-like object and forget it."""

    def __setitem__(self, key: object, value: object) -> None:
        """Take an item of a dict-like object and forget it."""


class InertDict(dict[Any, Any], metaclass=_Sealed):
    """An ordered dictionary of the file."""

    tv_name = "collections.OrderedDict"
    tv_kind = ""


@dataclass(frozen=True, slots=True)
class Call:
    """What a normal load would do with a name: `called` it, `built` it without calling, or called what it returned."""

    name: str
    how: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """The root object of a pickle, all global names in it and what a normal load would have called."""

    root: object
    names: tuple[str, ...]
    calls: tuple[Call, ...]


def looks_like_pickle(data: bytes) -> bool:
    """Whether `data` begins as a binary pickle does (protocol 2 or later), or is an older one, which is text, as a whole."""
    if data[:1] == b"\x80":
        return len(data) > 2 and 2 <= data[1] <= 5
    try:
        names = sum(opcode.name in ("GLOBAL", "INST") for opcode, _, _ in pickletools.genops(data))
    except Exception:
        return False
    return names > 0


def global_name(value: object) -> str:
    """The full name of the class of an inert object, or of an inert class itself; empty for plain values."""
    cls = value if isinstance(value, _Sealed) else type(value)
    return str(getattr(cls, "tv_name", "")) if isinstance(cls, _Sealed) else ""


def _looked_up(found: Opaque) -> tuple[str, ...]:
    """The full names that a `getattr` of the file may have found: the attribute and its default; empty where unknown."""
    match found.tv_args:  # type: ignore[attr-defined]
        case (_Sealed() as owner, str() as name):
            defaults: tuple[object, ...] = ()
        case (_Sealed() as owner, str() as name, default):
            defaults = (default,)
        case _:
            return ()
    if not all(isinstance(default, _Sealed) for default in defaults):
        return ()
    names = (f"{global_name(owner)}.{name}", *(global_name(default) for default in defaults))
    return tuple(_printable(name[:1000]) for name in names)


def load(data: bytes, path: str, records: tuple[str, ...] = ()) -> Loaded:
    """The content of the pickle `data`, all of it inert.

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
    with without_collection(), _without_extensions(), bounded_memory(stack + _budget(data)):
        if len(data) <= _TRIAL_BYTES and (trouble := trial(lambda: _abandoned(data, records, stack), _TRIAL_SECONDS)):
            raise ReadError(f"not a readable pickle: loading it {trouble}", Location(path))
        outcome = on_stack(unpickler.load, stack)
    if isinstance(outcome, MemoryError):
        raise ReadError(
            f"pickle of {len(data)} bytes needs more memory than {_budget(data) >> 20} MiB",
            Location(path),
            "it is corrupt or hostile; a plan of this size needs less",
        )
    if isinstance(outcome, _ERRORS):
        raise ReadError(f"not a readable pickle: {_said(outcome)}", Location(path, pointer=f"byte {unpickler.position()}"))
    if isinstance(outcome, BaseException):
        raise outcome
    rest = len(data) - unpickler.position()
    if rest:
        raise ReadError(f"{rest} bytes follow the end of the pickle", Location(path, pointer=f"byte {unpickler.position()}"))
    calls = tuple(Call(name, how) for name, how in unpickler.noted)
    return Loaded(outcome[0], tuple(unpickler.classes), calls)


def _abandoned(data: bytes, records: tuple[str, ...], stack: int) -> None:
    on_stack(_InertUnpickler(io.BytesIO(data), records).load, stack)


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
            found = self.classes[full] = self._stand_in(_printable(full))
        return found

    def _note(self, name: str, how: str) -> None:
        self.noted[name, how] = None

    def _stand_in(self, full: str) -> type:
        def called(args: tuple[object, ...]) -> object:
            self._note(full, "called")
            return make(args)

        namespace: dict[str, Any] = {
            "__slots__": (),
            "__module__": "tvlint.inert",
            "tv_name": full,
            "tv_kind": full.rpartition(".")[2] if full.startswith(self.records) else "",
            "tv_called": staticmethod(called),
            "tv_noted": staticmethod(self._note),
        }
        if full in ("numpy._core.multiarray.scalar", "numpy.core.multiarray.scalar"):
            make: Callable[[tuple[object, ...]], object] = _numpy_scalar
            return _Sealed("Scalar", (Opaque,), namespace)
        if full == "collections.OrderedDict":
            cls: type = _Sealed("InertDict", (InertDict,), namespace)
            make = _ignoring(dict.__new__, cls)
            return cls
        if full == "dill._dill._create_namedtuple":
            made = _Sealed("Opaque", (Opaque,), {**namespace, "tv_name": "collections.namedtuple"})
            make = _answering(made)
            return _Sealed("Opaque", (Opaque,), namespace)
        if full == "dill._dill._load_type":
            cls = _Sealed("Opaque", (Opaque,), namespace)
            remembered = _remembering(cls)
            make = lambda args: self.find_class("builtins", "slice") if _names_slices(args) else remembered(args)  # noqa: E731
            return cls
        if self.records and full.startswith(self.records):
            cls = _Sealed(namespace["tv_kind"], (Record,), namespace)
            make = _ignoring(object.__new__, cls)
            return cls
        cls = _Sealed("Opaque", (Opaque,), namespace)
        make = _remembering(cls)
        return cls


def _names_slices(args: tuple[object, ...]) -> bool:
    """Whether dill's look-up of a type is for slices, which are then made by calling what it finds."""
    return len(args) == 1 and type(args[0]) is str and args[0] in ("slice", "SliceType")


def _ignoring(new: Callable[..., object], cls: type) -> Callable[[tuple[object, ...]], object]:
    return lambda args: new(cls)


def _answering(answer: object) -> Callable[[tuple[object, ...]], object]:
    return lambda args: answer


def _remembering(cls: type) -> Callable[[tuple[object, ...]], object]:
    def make(args: tuple[object, ...]) -> object:
        made: object = object.__new__(cls)
        object.__setattr__(made, "tv_args", args)
        object.__setattr__(made, "tv_state", None)
        return made

    return make


def _numpy_scalar(args: tuple[object, ...]) -> object:
    """The number that a numpy scalar's dtype record and bytes stand for."""
    match args:
        case (Opaque() as dtype, bytes() as raw) if global_name(dtype) == "numpy.dtype":
            pass
        case _:
            raise ValueError("a numpy scalar without its dtype and bytes")
    code = dtype.tv_args[0] if dtype.tv_args else None  # type: ignore[attr-defined]
    state = dtype.tv_state  # type: ignore[attr-defined]
    order = state[1] if isinstance(state, tuple) and len(state) > 1 else "<"
    endian = ">" if order == ">" or (order == "=" and sys.byteorder == "big") else "<"
    letter = _SCALARS.get(code) if isinstance(code, str) else None
    if letter is None:
        raise ValueError(f"a numpy scalar of type {_said(code)}")
    number: object = struct.unpack(endian + letter, raw)[0]
    return number


_SCALARS = {
    "i1": "b",
    "i2": "h",
    "i4": "i",
    "i8": "q",
    "u1": "B",
    "u2": "H",
    "u4": "I",
    "u8": "Q",
    "f2": "e",
    "f4": "f",
    "f8": "d",
    "b1": "?",
}


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
        raise ReadError(f"not a readable pickle: {_said(error)}", Location(path)) from None


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _said(value: object) -> str:
    text = _printable(" ".join(str(value).split())) if not isinstance(value, bytes) else "bytes"
    return text[:200].rstrip(".") or type(value).__name__
