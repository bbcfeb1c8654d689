"""Typed access to the inert records of an nnScaler pickle: anything of another type than expected is `Malformed`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tvlint.ir.location import Location
from tvlint.ir.operators import Value
from tvlint.readers.sources.inert_objects import Opaque, Record, Sealed, global_name

_LARGEST = 1 << 62
_LONGEST_INTEGER = 128
_MOST_NUMBERS = 1 << 20
_MOST_PARTS = 10_000
_DEEPEST = 32

_COMMENT = re.compile(r'File "([^"\n]*)", line (\d{1,9}),?(?: in [^,\n]*,?)?\s*(.*)', re.DOTALL)


class Malformed(Exception):
    """Something in the pickle is not what nnScaler writes there."""


class Work:
    """A bound on the work for one file, so that lists that share their parts cannot unfold without end."""

    def __init__(self, most: int) -> None:
        self.left = most

    def spend(self, amount: int) -> None:
        """Count `amount` more things."""
        self.left -= amount
        if self.left < 0:
            raise Malformed("the plan refers to itself more often than its size allows")


def kind(value: object) -> str:
    """Return the class name of an nnScaler object (`IRSegment`), empty for anything else."""
    cls: type = type(value)
    return cls.tv_kind if isinstance(cls, Sealed) else ""


def fields(value: object, what: str) -> dict[str, Any]:
    """Return the attributes of a record."""
    if kind(value):
        return value.__dict__
    raise Malformed(f"{what} is {described(value)}")


def required(record: Mapping[str, Any], name: str, what: str) -> Any:
    """Return the attribute `name` of a record."""
    try:
        return record[name]
    except KeyError:
        raise Malformed(f"{what} has no `{name}`") from None


def sequence(value: object, what: str) -> list[Any] | tuple[Any, ...]:
    """Return a list or tuple."""
    if isinstance(value, (list, tuple)):
        return value
    raise Malformed(f"{what} is {described(value)}, not a list")


def mapping(value: object, what: str) -> dict[Any, Any]:
    """Return a dictionary."""
    if isinstance(value, dict):
        return value
    raise Malformed(f"{what} is {described(value)}, not a dictionary")


def integer(value: object, what: str, least: int = 0) -> int:
    """Return a whole number of at least `least`, and small enough to be one of sizes, ranks or ids."""
    if type(value) is int and least <= value < _LARGEST:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < _LONGEST_INTEGER:
        raise Malformed(f"{what} is {value}, out of range")
    raise Malformed(f"{what} is {described(value)}, not a number")


def integers(value: object, what: str, least: int = 0) -> tuple[int, ...]:
    """Return a tuple of whole numbers: `value` itself where it is one."""
    numbers = sequence(value, what)
    if len(numbers) > _MOST_NUMBERS:
        raise Malformed(f"{what} has more than {_MOST_NUMBERS} numbers")
    for number in numbers:
        if type(number) is not int or not least <= number < _LARGEST:
            integer(number, what, least)
    return numbers if type(numbers) is tuple else tuple(numbers)


def records_in(value: object, work: Work) -> list[Record]:
    """Return all nnScaler objects (`IR...`) in nested lists and dictionaries, in order."""
    if not isinstance(value, (list, tuple, dict)):
        return [value] if isinstance(value, Record) and kind(value).startswith("IR") else []
    found: list[Record] = []
    _collect(value, found, work, 0)
    return found


def _collect(items: list[Any] | tuple[Any, ...] | dict[Any, Any], found: list[Record], work: Work, depth: int) -> None:
    if not items:
        return
    if depth > _DEEPEST:
        raise Malformed(f"a list of tensors has more than {_DEEPEST} levels")
    work.spend(len(items))
    for item in items.values() if isinstance(items, dict) else items:
        cls = type(item)
        if isinstance(cls, Sealed) and cls.tv_kind.startswith("IR"):
            found.append(item)
        elif isinstance(item, (list, tuple, dict)):
            _collect(item, found, work, depth + 1)


def text(value: object, what: str) -> str:
    """Return a string without anything that cannot be printed as UTF-8."""
    if not isinstance(value, str):
        raise Malformed(f"{what} is {described(value)}, not a string")
    return printable(value)


def printable(value: str) -> str:
    """Return the string with lone surrogates escaped."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")


def described(value: object) -> str:
    """Return what a value of the file is, in few words."""
    name = global_name(value)
    if name:
        return f"`{name}`"
    if isinstance(value, str):
        return f"the string `{' '.join(printable(value)[:60].split())}`"
    return f"a {type(value).__name__}"


def constant(value: object, work: Work) -> Value:
    """Return an attribute or constant operand as a `Value`; slices and classes become their names, other objects `<name>`."""
    if value is None or type(value) is bool or type(value) is float:
        return value
    if type(value) is int and value.bit_length() < _LONGEST_INTEGER:
        return value
    if type(value) is str:
        return printable(value)
    return _Constants(work).value(value, 0)


class _Constants:
    """One conversion, bounded in size, because shared parts of a small file can unfold without end."""

    def __init__(self, work: Work) -> None:
        self.left = _MOST_PARTS
        self.work = work

    def value(self, value: object, depth: int) -> Value:
        self.left -= 1
        self.work.spend(1)
        if self.left < 0 or depth > _DEEPEST:
            raise Malformed(f"a constant has more than {_MOST_PARTS} parts or {_DEEPEST} levels")
        if value is None or isinstance(value, (bool, float)):
            return value
        if isinstance(value, int):
            if value.bit_length() >= _LONGEST_INTEGER:
                raise Malformed(f"a constant has {value.bit_length()} bits")
            return value
        if isinstance(value, str):
            return printable(value)
        if isinstance(value, (list, tuple)):
            return tuple([self.value(item, depth + 1) for item in value])
        if isinstance(value, dict):
            return tuple([(self.value(key, depth + 1), self.value(item, depth + 1)) for key, item in value.items()])
        if isinstance(value, type) and global_name(value):
            return global_name(value)
        if isinstance(value, Opaque) and global_name(value) == "builtins.slice":
            return ("slice", *[self.value(item, depth + 1) for item in value.tv_args])  # type: ignore[attr-defined]
        if isinstance(value, Opaque):
            return (f"<{global_name(value)}>", *[self.value(item, depth + 1) for item in value.tv_args])  # type: ignore[attr-defined]
        if global_name(value):
            return f"<{global_name(value)}>"
        raise Malformed(f"a constant is {described(value)}")


def dtype(value: object) -> str:
    """Return the name of an element type without `torch.`; empty when the plan does not say."""
    if value is None:
        return ""
    name = global_name(value) or (value if isinstance(value, str) else "")
    if not name:
        raise Malformed(f"a dtype is {described(value)}")
    return printable(name).removeprefix("torch.")


class Sources:
    """The places in the model's source that operators come from, parsed once per distinct comment."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: dict[str, Location | None] = {}

    def of(self, comment: object, pointer: Callable[[], str]) -> Location:
        """Return the place that a comment names, or the operator's place in the plan."""
        if isinstance(comment, str):
            if comment not in self._seen:
                self._seen[comment] = _parsed(comment)
            found = self._seen[comment]
            if found is not None:
                return found
        return Location(self._path, pointer=pointer())


def _parsed(comment: str) -> Location | None:
    match = _COMMENT.match(comment)
    if match is None or int(match[2]) < 1:
        return None
    line = match[3].strip().splitlines()
    return Location(printable(match[1]), int(match[2]), text=printable(line[0].strip()) if line else "")
