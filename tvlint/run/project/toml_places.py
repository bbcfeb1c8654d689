"""Locate the keys of a TOML file; the parser of the standard library does not."""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from typing import TypeAlias

from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern

KeyPath: TypeAlias = tuple["str | int", ...]
"""Keys from the top of the file; an element of an array of tables by its index."""

_HEADER = Pattern(r"\s*(\[\[?)(.+?)\]\]?\s*(?:#.*)?$")
_KEY = Pattern(r"""\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*=""")
_PART = Pattern(r""""[^"]*"|'[^']*'|[^.\s]+""")


class Places:
    """The place of every key that stands on a line of its own; inside inline values, of the key that holds them."""

    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._lines = text.split("\n")
        self._found: dict[KeyPath, Location] = {}
        table: KeyPath = ()
        counts: dict[KeyPath, int] = {}
        for number, line in enumerate(self._lines, 1):
            if header := _HEADER.match(line):
                table = self._table(header[2], counts, array=header[1] == "[[")
                self._add(table, number, header.start(2), header.end(2))
                self._add(_parts(header[2]), number, header.start(2), header.end(2))
            elif key := _KEY.match(line):
                self._add(table + _parts(key[1]), number, key.start(1), key.end(1))

    def _table(self, name: str, counts: dict[KeyPath, int], array: bool) -> KeyPath:
        path: KeyPath = ()
        whole = _parts(name)
        for part in whole:
            path += (part,)
            if path in counts and path != whole:
                path += (counts[path],)
        if array:
            counts[path] = counts.get(path, -1) + 1
            path += (counts[path],)
        return path

    def _add(self, path: KeyPath, line: int, start: int, end: int) -> None:
        self._found.setdefault(path, Location(self._path, line, start + 1, line, end + 1))

    def key(self, path: KeyPath) -> Location:
        """Return the place of the key, or of the nearest one around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._found:
                return self._found[path[:length]]
        return Location(self._path, 1, 1)

    def text(self, path: KeyPath, value: str) -> Location:
        """Return the place of the string `value` at or after the key."""
        key = self.key(path)
        places = self._quoted.get(value, [])
        after = bisect_left(places, (key.line or 1, 0))
        if after == len(places):
            return key
        line, column = places[after]
        return Location(self._path, line, column, line, column + len(value) + 2)

    @cached_property
    def _quoted(self) -> dict[str, list[tuple[int, int]]]:
        """The line and column of everything that stands between two quotes of a kind on a line, ascending."""
        found: dict[str, list[tuple[int, int]]] = {}
        for number, line in enumerate(self._lines, 1):
            places = []
            for quote in "\"'":
                at = line.find(quote)
                for text in line.split(quote)[1:-1]:
                    places.append((at + 1, text))
                    at += len(text) + 1
            for column, text in sorted(places):
                found.setdefault(text, []).append((number, column))
        return found


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part[1:-1] if part[0] in "\"'" else part for part in _PART.findall(name))
