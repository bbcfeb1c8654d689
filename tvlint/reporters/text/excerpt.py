"""The source lines that a location points at.

A plan may name any path as the source of an operator, and a report may be published, so only two kinds of files are shown:
those that a person named, and those that git tracks (outside of a checkout: unhidden ones in a folder that a person named).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from tvlint.checkout.following import may_be_shown
from tvlint.checkout.opening import content
from tvlint.checkout.top import top_of
from tvlint.findings import Report
from tvlint.ir.location import Location
from tvlint.ir.values import dataclass
from tvlint.reporters.context import Context
from tvlint.reporters.escape.visible import display_width, visible_source
from tvlint.reporters.text.paths import resolved

MAXIMAL_SIZE = 4 << 20
"""Bytes of the largest file that is opened for an excerpt."""
_NEAR = 4
"""Times the width of an excerpt: farther from its span nothing is looked at."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One source line ready to show, and the span in it that is meant (display columns; `length` 0: no span)."""

    line: int | None
    text: str
    start: int = 0
    length: int = 0


Excerpts: TypeAlias = Callable[[Location], "Excerpt | None"]


def excerpts(report: Report, context: Context, width: int = 0) -> Excerpts:
    """Return a function from location to excerpt that reads each file once; `width` > 0 crops long lines around the span."""
    asked = _asked(report, context)
    files: dict[str, tuple[str, ...] | None] = {}

    def lines(path: str) -> tuple[str, ...] | None:
        if path not in files:
            text = _read(path, context, asked)
            files[path] = None if text is None else split_lines(text)
        return files[path]

    def excerpt(location: Location) -> Excerpt | None:
        found = _line(location, lines)
        return None if found is None else _crop(_mark(found, location, width), width)

    return excerpt


def source_text(path: str, report: Report, context: Context) -> str | None:
    """Return the content of a file that may be shown; None where it may not, or is not text."""
    return _read(path, context, _asked(report, context))


def _asked(report: Report, context: Context) -> frozenset[Path]:
    """Return the files and folders of generated code that a person named, and that were read."""
    read = dict.fromkeys((*report.checked, *(problem.location.path for problem in report.problems)))
    return context.named.intersection(resolved(path, context.root) for path in read)


def split_lines(text: str) -> tuple[str, ...]:
    """The lines of `text`, whatever ends them, without its byte order mark."""
    return tuple(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n"))


def _read(path: str, context: Context, asked: frozenset[Path]) -> str | None:
    real = resolved(path, context.root)
    if real is None:
        return None
    if not asked.intersection((real, real.parent)) and not _is_shown_unasked(path, real, context):
        return None
    try:
        data = content(real, MAXIMAL_SIZE)
    except (OSError, ValueError):
        return None
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _is_shown_unasked(path: str, real: Path, context: Context) -> bool:
    """Return whether lines of a file are shown that no person named."""
    inside = top_of(context.root) is not None or not context.named.isdisjoint(real.parents)
    return inside and may_be_shown(path, context.root)


def _line(location: Location, lines: Callable[[str], tuple[str, ...] | None]) -> str | None:
    """Return the line on disk, unless the artefact carries another one: it is the line that was run."""
    on_disk = None
    if location.line is not None and location.line >= 1:
        source = lines(location.path)
        if source is not None and location.line <= len(source):
            on_disk = source[location.line - 1]
    if location.text.strip() and (on_disk is None or on_disk.strip() != location.text.strip()):
        return location.text.strip("\r\n")
    return on_disk if on_disk is not None and on_disk.strip() else None


def _mark(line: str, location: Location, width: int) -> Excerpt:
    """Return the line with its span; of a line that is much longer than `width`, no more than what may be shown of it."""
    near = _NEAR * width if width > 0 else len(line)
    if location.column is None or not 1 <= location.column <= len(line) + 1:
        return Excerpt(location.line, visible_source(line[:near]))
    start = location.column - 1
    end = len(line.rstrip())
    if location.end_line in (None, location.line):
        end = location.end_column - 1 if location.end_column is not None else start + 1
    end = max(start + 1, min(end, len(line), start + near))
    low = max(0, start - near)
    line, start, end = line[low : start + near], start - low, end - low
    shown = visible_source(line)
    before = display_width(visible_source(line[:start]))
    return Excerpt(location.line, shown, before, max(1, display_width(visible_source(line[start:end]))))


def _crop(excerpt: Excerpt, width: int) -> Excerpt:
    """Return the part of a long line around its span, `…` where something was left out; characters stay whole."""
    if width <= 0 or display_width(excerpt.text) <= width:
        return excerpt
    skip = max(0, excerpt.start - width // 4) if excerpt.start + excerpt.length > width - 1 else 0
    kept: list[str] = []
    position = 0
    first = None
    for character in excerpt.text:
        size = display_width(character)
        if position >= skip:
            first = position if first is None else first
            if position + size - first + bool(skip) > width - 1:
                kept.append("…")
                break
            kept.append(character)
        position += size
    start = max(0, excerpt.start - (first or 0) + bool(skip))
    return Excerpt(excerpt.line, ("…" if skip else "") + "".join(kept), start, max(0, min(excerpt.length, width - start)))
