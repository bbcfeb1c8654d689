"""Inert classes for the names in a pickle, made for one load: their objects record and do nothing.

Classes that the reader knows become `Record`s (attributes in `__dict__`, no methods), every other name an `Opaque` that
remembers what it was called with. The classes refuse to be changed, so that a `BUILD` on a class cannot reach another record.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Any


class Sealed(type):
    """The class of all stand-in classes: nothing in a file can change one, and calling one is noted, not done."""

    tv_name: str
    """The full name that the file gives."""
    tv_kind: str
    """The class name alone; empty for what is no `Record`."""

    def __setattr__(cls, name: str, value: object) -> None:
        raise TypeError("a pickle sets an attribute of a class")

    def __delattr__(cls, name: str) -> None:
        raise TypeError("a pickle deletes an attribute of a class")

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.tv_called(args)  # type: ignore[attr-defined]


class Record(metaclass=Sealed):
    """An object of a class that the reader knows; its attributes are in `__dict__`.

    It has no `__setstate__`, so that a state is copied as in a normal load: a state that the file changes afterwards must not
    change the object.
    """

    __slots__ = ("__dict__",)
    tv_name = ""
    tv_kind = ""

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Take any arguments, as `object.__new__` then does."""


class Opaque(metaclass=Sealed):
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


class InertDict(dict[Any, Any], metaclass=Sealed):
    """An ordered dictionary of the file."""

    tv_name = "collections.OrderedDict"
    tv_kind = ""


def global_name(value: object) -> str:
    """Return the full name of the class of an inert object, or of an inert class itself; empty for plain values."""
    cls = value if isinstance(value, Sealed) else type(value)
    return str(getattr(cls, "tv_name", "")) if isinstance(cls, Sealed) else ""


def _looked_up(found: Opaque) -> tuple[str, ...]:
    """Return the full names that a `getattr` of the file may have found: the attribute and its default; empty where unknown."""
    match found.tv_args:  # type: ignore[attr-defined]
        case (Sealed() as owner, str() as name):
            defaults: tuple[object, ...] = ()
        case (Sealed() as owner, str() as name, default):
            defaults = (default,)
        case _:
            return ()
    if not all(isinstance(default, Sealed) for default in defaults):
        return ()
    names = (f"{global_name(owner)}.{name}", *(global_name(default) for default in defaults))
    return tuple(printable(name[:1000]) for name in names)


def stand_in(full: str, records: tuple[str, ...], note: Callable[[str, str], None], slices: Callable[[], Any]) -> type:
    """Return the class that stands for the name `full` in one load.

    Names that begin with one of `records` become `Record` classes. `note` is given what a normal load would do with which name;
    `slices` gives the class that stands for Python's slices.
    """

    def called(args: tuple[object, ...]) -> object:
        if not _makes_a_class(full, args):
            note(full, "read otherwise" if _is_lost(full, args, records) else "called")
        return make(args)

    namespace: dict[str, Any] = {
        "__slots__": (),
        "__module__": "tvlint.inert",
        "tv_name": full,
        "tv_kind": full.rpartition(".")[2] if full.startswith(records) else "",
        "tv_called": staticmethod(called),
        "tv_noted": staticmethod(note),
    }
    if full in ("numpy._core.multiarray.scalar", "numpy.core.multiarray.scalar"):
        make: Callable[[tuple[object, ...]], object] = _numpy_scalar
        return Sealed("Scalar", (Opaque,), namespace)
    if full == "collections.OrderedDict":
        cls: type = Sealed("InertDict", (InertDict,), namespace)
        make = _ignoring(dict.__new__, cls)
        return cls
    if full == "dill._dill._create_namedtuple":
        silent: dict[str, Any] = {"tv_noted": staticmethod(lambda name, how: None), "tv_name": "collections.namedtuple"}
        tuples = Sealed("Opaque", (Opaque,), {**namespace, **silent})
        type.__setattr__(tuples, "tv_called", staticmethod(_remembering(tuples)))
        make = _answering(tuples)
        return Sealed("Opaque", (Opaque,), namespace)
    if full == "dill._dill._load_type":
        cls = Sealed("Opaque", (Opaque,), namespace)
        remembered = _remembering(cls)
        make = lambda args: slices() if _names_slices(args) else remembered(args)  # noqa: E731
        return cls
    if records and full.startswith(records):
        cls = Sealed(namespace["tv_kind"], (Record,), namespace)
        make = _ignoring(object.__new__, cls)
        return cls
    cls = Sealed("Opaque", (Opaque,), namespace)
    make = _remembering(cls)
    return cls


def _is_lost(full: str, args: tuple[object, ...], records: tuple[str, ...]) -> bool:
    """Return whether a normal load gives an object of the plan something by this call that a stand-in does not get.

    Attributes of what remembers and does nothing belong to nothing; an enumeration is made from its one value.
    """
    if full in ("builtins.setattr", "dill._dill._setattr"):
        return not (args and isinstance(args[0], Opaque))
    if full == "builtins.getattr":
        return bool(args) and isinstance(args[0], Record)
    if full == "collections.OrderedDict":
        return bool(args)
    return bool(records) and full.startswith(records) and not (len(args) == 1 and isinstance(args[0], str | int))


def _makes_a_class(full: str, args: tuple[object, ...]) -> bool:
    """Return whether dill's call only makes a class: a named tuple of nnScaler or torch, or the class of a model in a script.

    Another module would be imported by its name, and another maker than `type` would be called.
    """
    match args:
        case (str(), tuple(), str() as module) if full == "dill._dill._create_namedtuple":
            return module.partition(".")[0] in ("nnscaler", "torch")
        case (Opaque() as maker, str(), tuple() as bases, dict()) if full == "dill._dill._create_type":
            known = global_name(maker) == "dill._dill._load_type" and maker.tv_args == ("type",)  # type: ignore[attr-defined]
            return known and all(isinstance(base, (Sealed, Opaque)) for base in bases)
    return False


def _names_slices(args: tuple[object, ...]) -> bool:
    """Return whether dill's look-up of a type is for slices, which are then made by calling what it finds."""
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
    """Return the number that a numpy scalar's dtype record and bytes stand for."""
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
        raise ValueError(f"a numpy scalar of type {said(code)}")
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


def printable(text: str) -> str:
    """Return the text with everything escaped that cannot be printed."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def said(value: object) -> str:
    """Return a value in one short line that can be printed."""
    text = printable(" ".join(str(value).split())) if not isinstance(value, bytes) else "bytes"
    return text[:200].rstrip(".") or type(value).__name__
