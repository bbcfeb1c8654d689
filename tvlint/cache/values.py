"""Frozen values as JSON and back: numbers, strings, tuples, enumerations and dataclasses of those."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def encode(value: object) -> bytes:
    """The value as JSON in ASCII; fields stand in the order of their class. Raises TypeError for a value of another kind."""
    return json.dumps(_plain(value), ensure_ascii=True, separators=(",", ":")).encode("ascii")


def decode(data: bytes, type: type[T]) -> T:
    """Return the value of that type that `encode` was given. Raises ValueError or TypeError where the data are of no such
    value.
    """
    reader: Callable[[Any], T] = _reader(type)  # type: ignore[arg-type]
    return reader(json.loads(data))


def _plain(value: object) -> Any:
    return _writer(type(value))(value)  # type: ignore[arg-type]


@cache
def _writer(kind: type) -> Callable[[Any], Any]:
    """Return the function from values of that class to data."""
    if issubclass(kind, Enum):
        return lambda value: value.name
    if issubclass(kind, NoneType | bool | int | float | str):
        return lambda value: value
    if issubclass(kind, tuple):
        return lambda value: [part if type(part) in _SCALARS else _plain(part) for part in value]
    if is_dataclass(kind):
        names = tuple(field.name for field in fields(kind))
        parts = _writer(tuple)
        return lambda value: parts([getattr(value, name) for name in names])
    raise TypeError(f"no value that is remembered: {kind.__name__}")


_SCALARS = frozenset({NoneType, bool, int, float, str})


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return the function from data to a value of that type."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _one_of(tuple(_reader(part) for part in parts if part is not NoneType), NoneType in parts)
    if origin is tuple:
        return _some(_reader(parts[0])) if len(parts) == 2 and parts[1] is Ellipsis else _row(tuple, parts)
    if kind in (bool, int, float, str):
        return _scalar(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {member.name: member for member in kind}.__getitem__
    if is_dataclass(kind) and isinstance(kind, type):
        return _row(lambda values: kind(*values), tuple(field_types(kind).values()))
    raise TypeError(f"no type that is remembered: {kind}")


def field_types(kind: type) -> dict[str, Any]:
    """Return the types of the fields of a dataclass, in order, also of those that its module imports for type checkers only."""
    from tvlint.ir.outline import Outline

    hints = get_type_hints(kind, localns={"Outline": Outline})
    return {field.name: hints[field.name] for field in fields(kind)}


def _scalar(kind: type) -> Callable[[Any], Any]:
    also = int if kind is float else kind

    def read(data: Any) -> Any:
        if type(data) is not kind and type(data) is not also:
            raise ValueError(f"no {kind.__name__}")
        return data

    return read


def _some(part: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(data: Any) -> Any:
        if type(data) is not list:
            raise ValueError("no tuple")
        return tuple([part(item) for item in data])

    return read


def _row(build: Callable[[list[Any]], Any], kinds: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Return values of these types in order; their readers are found at first use, as a type may contain itself."""
    readers: list[Callable[[Any], Any]] = []

    def read(data: Any) -> Any:
        if not readers:
            readers.extend(map(_reader, kinds))
        if type(data) is not list or len(data) != len(kinds):
            raise ValueError(f"no values of {len(kinds)} types")
        return build([reader(item) for reader, item in zip(readers, data, strict=True)])

    return read


def _one_of(readers: tuple[Callable[[Any], Any], ...], optional: bool) -> Callable[[Any], Any]:
    """Return the value of an optional type, or of the first type of a union that the data fit."""

    def read(data: Any) -> Any:
        if data is None and optional:
            return None
        for reader in readers:
            try:
                return reader(data)
            except (ValueError, TypeError, KeyError):
                continue
        raise ValueError("none of the types")

    return read
