"""The lines of this checkout that a plan was traced from, for places that name a file of the machine that traced it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TypeVar

from tvlint.checkout.following import may_be_shown
from tvlint.checkout.opening import LONGEST_PATH, content
from tvlint.findings import Finding, Report
from tvlint.ir.location import Location
from tvlint.run.output.json_places import moved, places
from tvlint.run.project.discovery import shown
from tvlint.run.project.project_file import Project

_LARGEST = 4 << 20
"""Bytes of the largest source that is read."""

Item = TypeVar("Item", Report, tuple[Finding, ...])


def at_sources(item: Item, project: Project) -> Item:
    """Return the item, each place in a file that is not there at the same line of the same file in the project's sources.

    A file is the same where the last parts of its path are and the line that the plan carries stands in it.
    """
    known: dict[Location, Location] = {}
    texts: dict[str, list[str]] = {}
    for place in places(item):
        if place.text.strip() and place.line is not None and not os.path.exists(place.path):
            found = _found(place, project, texts)
            if found is not None:
                known[place] = found
    result: Item = moved(item, known) if known else item
    return result


def _found(place: Location, project: Project, texts: dict[str, list[str]]) -> Location | None:
    for path in _candidates(place.path, project):
        if path not in texts:
            texts[path] = _lines(path, project)
        line = _line(place, texts[path])
        if line is not None:
            column = place.column if line == place.line else None
            return Location(path, line, column, line, None, place.pointer, place.text)
    return None


def _candidates(path: str, project: Project) -> Iterator[str]:
    """The files of the project whose paths end as the path does, those that share most first."""
    parts = tuple(part for part in PurePosixPath(path.replace("\\", "/")).parts if part != "/")
    if ".." in parts or len(path) > LONGEST_PATH:
        return
    for kept in range(len(parts), 0, -1):
        for root in project.source_roots:
            candidate = project.folder.joinpath(root, *parts[-kept:])
            if os.path.isfile(candidate):
                yield shown(candidate)


def _lines(path: str, project: Project) -> list[str]:
    if not may_be_shown(os.path.abspath(path), project.folder):
        return []
    try:
        return content(path, _LARGEST).decode("utf-8").splitlines()
    except (OSError, ValueError):
        return []


def _line(place: Location, lines: list[str]) -> int | None:
    """Return the line of the place where it still says the same, else the only one that does."""
    text = place.text.strip()
    if place.line is not None and place.line <= len(lines) and lines[place.line - 1].strip() == text:
        return place.line
    alike = [number for number, line in enumerate(lines, 1) if line.strip() == text]
    return alike[0] if len(alike) == 1 else None
