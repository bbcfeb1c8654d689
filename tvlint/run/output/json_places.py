"""Lines for places in JSON that are known only by their pointer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvlint.checkout.opening import content
from tvlint.findings import Report
from tvlint.ir.location import Location
from tvlint.ir.values import fields, is_dataclass, replace

_LARGEST = 256 << 20
"""Bytes of the largest file that is read again for the lines of what is said of it."""


def with_lines(report: Report) -> Report:
    """Return the report, every place in a JSON plan with the line and column at which its pointer leads."""
    wanted: dict[str, set[Location]] = {}
    for place in places(report):
        if place.line is None and place.pointer.startswith("/"):
            wanted.setdefault(place.path, set()).add(place)
    known: dict[Location, Location] = {}
    for path, locations in wanted.items():
        known |= _located(path, locations)
    seen: Report = moved(report, known) if known else report
    return seen


def _located(path: str, places: set[Location]) -> dict[Location, Location]:
    from tvlint.readers.plan_json import reader as plan_json

    try:
        text = content(path, _LARGEST).decode("utf-8")
    except (OSError, ValueError):
        return {}
    if not plan_json.recognise(text):
        return {}
    lines = plan_json.locate(text, places)
    return {place: lines[place.pointer] for place in places if place.pointer in lines}


def places(item: Any) -> Iterator[Location]:
    """Yield every place in the item."""
    if isinstance(item, Location):
        yield item
    elif isinstance(item, tuple):
        for part in item if not item or is_dataclass(item[0]) else ():
            yield from places(part)
    elif is_dataclass(item) and not isinstance(item, type):
        for field in fields(item):
            yield from places(getattr(item, field.name))


def moved(item: Any, known: dict[Location, Location]) -> Any:
    """Return the item with other places wherever one that is known stands in it."""
    if isinstance(item, Location):
        return known.get(item, item)
    if isinstance(item, tuple):
        return tuple(moved(part, known) for part in item) if item and is_dataclass(item[0]) else item
    if not is_dataclass(item) or isinstance(item, type):
        return item
    changes = {}
    for field in fields(item):
        old = getattr(item, field.name)
        new = moved(old, known)
        if new is not old and new != old:
            changes[field.name] = new
    return replace(item, **changes) if changes else item
