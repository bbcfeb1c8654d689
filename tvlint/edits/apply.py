"""Apply edits to a text."""

from __future__ import annotations

from collections.abc import Iterable

from tvlint.findings import Edit
from tvlint.ir.lines import Lines
from tvlint.ir.location import Location

BYTE_ORDER_MARK = "\ufeff"


class Text:
    """A text whose places are found by line and column; a byte order mark before it has no column."""

    def __init__(self, text: str) -> None:
        self.text = text
        start = len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0
        self._lines = Lines(text, start)

    def span(self, location: Location) -> tuple[int, int] | None:
        """Return the first and the last offset of the place; None where it has no columns or is not in the text."""
        start = self._offset(location.line, location.column)
        end = self._offset(location.end_line or location.line, location.end_column)
        return None if start is None or end is None or end < start else (start, end)

    def location(self, path: str, start: int, end: int) -> Location:
        """Return the place of the text between two offsets."""
        return self._lines.location(path, start, end)

    def edit(self, path: str, span: tuple[int, int], text: str) -> Edit:
        """Return the edit that puts `text` in the place of a span."""
        return Edit(self.location(path, *span), text)

    def edited(self, edits: Iterable[Edit]) -> str | None:
        """Return the text after the edits; None where one is not in it, or two meet."""
        spans = [(self.span(edit.location), edit.text) for edit in edits]
        parts, last = [], 0
        for span, text in sorted(spans, key=lambda entry: entry[0] or (-1, -1)):
            if span is None or span[0] < last:
                return None
            parts += [self.text[last : span[0]], text]
            last = span[1]
        return "".join([*parts, self.text[last:]])

    def _offset(self, line: int | None, column: int | None) -> int | None:
        if line is None or column is None or not 0 < line <= len(self._lines):
            return None
        start, end = self._lines.bounds(line)
        offset = start + column - 1
        return offset if offset <= end else None
