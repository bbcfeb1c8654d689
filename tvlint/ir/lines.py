"""The places of a text, by line and column and by offset."""

from __future__ import annotations

import re
from bisect import bisect_right

from tvlint.ir.location import Location


class Lines:
    """Where the lines of a text begin, found once; lines and columns count from 1, columns in code points."""

    def __init__(self, text: str, first: int = 0) -> None:
        self._end = len(text)
        self._starts = [first, *(newline.end() for newline in re.finditer("\n", text))]

    def __len__(self) -> int:
        return len(self._starts)

    def place(self, offset: int) -> tuple[int, int]:
        """Return the line and the column of an offset."""
        line = max(1, bisect_right(self._starts, offset))
        return line, offset - self._starts[line - 1] + 1

    def bounds(self, line: int) -> tuple[int, int]:
        """Return the offsets where a line begins and ends, with its newline."""
        return self._starts[line - 1], self._starts[line] if line < len(self._starts) else self._end

    def location(self, path: str, start: int, end: int) -> Location:
        """Return the place of the text between two offsets."""
        return Location(path, *self.place(start), *self.place(max(start, end)))
