"""Locate the values of a JSON text by walking it once more."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from tvlint.ir.lines import Lines
from tvlint.ir.location import Location

Path: TypeAlias = tuple[str | int, ...]

MOST_SHOWN = 4096
"""Characters of the longest line that a location carries with it."""

_TOKEN = re.compile(r'[\s,:]*("(?:[^"\\]|\\.)*"|[\[\]{}]|[^\s,:\[\]{}"]+)')


@dataclass(frozen=True, slots=True)
class _Found:
    """A key or value: its path, and where its text begins and ends (a container: its first bracket)."""

    path: Path
    start: int
    end: int
    is_key: bool


def _walk(text: str) -> Iterator[_Found]:
    path: list[str | int] = []
    in_object: list[bool] = []
    key_next = False
    for match in _TOKEN.finditer(text):
        token, start, end = match.group(1), match.start(1), match.end(1)
        if token in ("}", "]"):
            if in_object:
                in_object.pop()
                path.pop()
            key_next = bool(in_object) and in_object[-1]
            continue
        if in_object and in_object[-1] and key_next:
            path[-1] = str(json.loads(token, strict=False)) if token[0] == '"' else token
            yield _Found(tuple(path), start, end, True)
            key_next = False
            continue
        if in_object and not in_object[-1]:
            last = path[-1]
            path[-1] = last + 1 if isinstance(last, int) else 0
        yield _Found(tuple(path), start, end, False)
        if token in ("{", "["):
            in_object.append(token == "{")
            path.append("" if token == "{" else -1)
            key_next = token == "{"
        else:
            key_next = bool(in_object) and in_object[-1]


def pointer(path: Path) -> str:
    """Return the JSON pointer of a path."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in path)


def place_of(file: str, text: str, path: Path, of_key: bool = False) -> Location:
    """Return where the value (or the key) at `path` stands."""
    for found in _walk(text):
        if found.path == path and found.is_key is of_key:
            return _location(file, text, Lines(text), found)
    return Location(file, pointer=pointer(path))


def first_duplicate(file: str, text: str) -> tuple[str, Location, Location] | None:
    """Return the first key that stands twice in one object: the key, its second and its first place."""
    seen: dict[int, dict[str, _Found]] = {}
    for found in _walk(text):
        depth = len(found.path)
        if not found.is_key:
            for deeper in [level for level in seen if level > depth]:
                del seen[deeper]
            continue
        key = str(found.path[-1])
        first = seen.setdefault(depth, {}).get(key)
        if first is not None:
            lines = Lines(text)
            return key, _location(file, text, lines, found), _location(file, text, lines, first)
        seen[depth][key] = found
    return None


def locate(text: str, locations: Collection[Location]) -> dict[str, Location]:
    """Return the `locations` of one file that have a JSON pointer and no line, by pointer, with their line and column in
    `text`.
    """
    wanted = {location.pointer: location for location in locations if location.pointer and location.line is None}
    depths = {location.count("/") for location in wanted}
    found: dict[str, Location] = {}
    if not wanted:
        return found
    lines = Lines(text)
    for each_found in _walk(text):
        if each_found.is_key or len(each_found.path) not in depths:
            continue
        name = pointer(each_found.path)
        if name in wanted:
            place = _location(wanted[name].path, text, lines, each_found)
            found[name] = replace(place, pointer=name)
            if len(found) == len(wanted):
                break
    return found


def _location(file: str, text: str, lines: Lines, found: _Found) -> Location:
    line, column = lines.place(found.start)
    start, end = lines.bounds(line)
    row = text[start:end].rstrip("\r\n") if end - start <= MOST_SHOWN else ""
    return Location(file, line, column, line, found.end - start + 1, pointer(found.path), row)
