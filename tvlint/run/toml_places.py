"""Where each key of a TOML file stands; the parser of the standard library does not say."""

from __future__ import annotations

import re
from typing import TypeAlias

from tvlint.ir.location import Location

KeyPath: TypeAlias = tuple["str | int", ...]
"""Keys from the top of the file; an element of an array of tables by its index."""

_HEADER = re.compile(r"\s*(\[\[?)(.+?)\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*=""")
_PART = re.compile(r""""[^"]*"|'[^']*'|[^.\s]+""")


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
        for part in _parts(name):
            path += (part,)
            if path in counts and path != _parts(name):
                path += (counts[path],)
        if array:
            counts[path] = counts.get(path, -1) + 1
            path += (counts[path],)
        return path

    def _add(self, path: KeyPath, line: int, start: int, end: int) -> None:
        self._found.setdefault(path, Location(self._path, line, start + 1, line, end + 1))

    def key(self, path: KeyPath) -> Location:
        """The place of the key, or of the nearest one around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._found:
                return self._found[path[:length]]
        return Location(self._path, 1, 1)

    def text(self, path: KeyPath, value: str) -> Location:
        """The place of the string `value` at or after the key."""
        key = self.key(path)
        for number in range(key.line or 1, len(self._lines) + 1):
            for quote in "\"'":
                at = self._lines[number - 1].find(f"{quote}{value}{quote}")
                if at >= 0:
                    return Location(self._path, number, at + 1, number, at + len(value) + 3)
        return key


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part[1:-1] if part[0] in "\"'" else part for part in _PART.findall(name))
