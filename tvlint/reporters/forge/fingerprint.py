"""Fingerprints by which a site recognises a finding after lines have moved."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256

_WINDOW = 100
_BASE = 37
_MASK = (1 << 64) - 1
_OLDEST = pow(_BASE, _WINDOW, 1 << 64)
_END = 65535


def line_hashes(text: str, wanted: set[int]) -> dict[int, str]:
    """GitHub's `primaryLocationLineHash` of the `wanted` lines (1-based) of `text`.

    A polynomial hash modulo 2**64, base 37, over the 100 UTF-16 units from the line's first one on, blanks and tabs left
    out, any line end as LF, the end of the file as 65535 and zeros after it; then `:n` for the n-th line of that hash.
    """
    units, starts = _units(text)
    seen: Counter[int] = Counter()
    found = {}
    value = 0
    due = {start: line for line, start in enumerate(starts, 1)}
    last = max((line for line in wanted if line <= len(starts)), default=0)
    for position, unit in enumerate([*units, *[0] * _WINDOW]):
        gone = 0
        if position >= _WINDOW:
            start = position - _WINDOW
            gone = units[start]
            line = due.get(start)
            if line is not None:
                seen[value] += 1
                if line in wanted:
                    found[line] = f"{value:x}:{seen[value]}"
                if line >= last:
                    break
        value = (value * _BASE + unit - _OLDEST * gone) & _MASK
    return found


def _units(text: str) -> tuple[list[int], list[int]]:
    """Return the units that count, and where among them each line starts."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n").replace(" ", "").replace("\t", "")
    encoded = plain.encode("utf-16-le", "surrogatepass")
    units = [*memoryview(encoded).cast("H"), _END]
    starts = [0, *(index + 1 for index, unit in enumerate(units) if unit == 10)]
    return units, starts


def semantic(rule: str, path: str, pointer: str, line: str, message: str) -> str:
    """Return what the finding is, whatever its line number: rule, file, and the source line or else pointer and message."""
    text = " ".join(line.split())
    parts = (rule, path, pointer, text) if text else (rule, path, pointer, message)
    return sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]
