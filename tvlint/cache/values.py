"""Frozen values as JSON and back: numbers, strings, tuples, enumerations and dataclasses of those."""

from __future__ import annotations

import json
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
    """The value of that type that `encode` was given. Raises ValueError or TypeError where the data are of no such value."""
    value: T = _typed(json.loads(data), type)
    return value


def _plain(value: object) -> Any:
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if is_dataclass(value) and not isinstance(value, type):
        return [_plain(getattr(value, field.name)) for field in fields(value)]
    raise TypeError(f"no value that is remembered: {type(value).__name__}")


def _typed(data: Any, kind: Any) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _one_of(data, parts)
    if origin is tuple:
        if not isinstance(data, list):
            raise ValueError("no tuple")
        if len(parts) == 2 and parts[1] is Ellipsis:
            return tuple([_typed(part, parts[0]) for part in data])
        return tuple(_typed(part, own) for part, own in zip(data, parts, strict=True))
    if kind in (bool, int, float, str):
        if type(data) is not kind and not (kind is float and type(data) is int):
            raise ValueError(f"no {kind.__name__}")
        return data
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind[data]
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(data, list):
        return kind(*[_typed(part, own) for part, own in zip(data, _field_types(kind), strict=True)])
    raise TypeError(f"no type that is remembered: {kind}")


def _one_of(data: Any, kinds: tuple[Any, ...]) -> Any:
    """The value of an optional type, or of a union of kinds that JSON tells apart."""
    if data is None and NoneType in kinds:
        return None
    for kind in kinds:
        if kind is not NoneType:
            try:
                return _typed(data, kind)
            except (ValueError, TypeError, KeyError):
                continue
    raise ValueError("none of the types")


@cache
def _field_types(kind: type) -> tuple[Any, ...]:
    hints = get_type_hints(kind)
    return tuple(hints[field.name] for field in fields(kind))
