"""TOML text, parsed within bounds."""

from __future__ import annotations

import sys
from typing import Any

from tvlint.ir.lines import Lines
from tvlint.ir.patterns import Pattern

MOST_PARTS = 64
"""The parts of the longest dotted key that is read: the parser's time and memory grow with their square."""
_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\\\n]*"|'[^'\n]*')[ \t]*"""
_LONG_KEY = Pattern(rf"""(?<![A-Za-z0-9_"'.-]){_PART}(?:\.[ \t]*{_PART}){{{MOST_PARTS}}}""")
_LONG_NUMBER = Pattern(r"[0-9_]{1000}")
_PLACE = Pattern(r"line (\d+), column (\d+)")
_LARGEST = 1 << 63


class NotToml(Exception):
    """The text is no TOML within the bounds; says what is wrong, and where it is known."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.message, self.line, self.column = message, line, column


class TooLarge(NotToml):
    """The text may be TOML, and is beyond the bounds within which it is read."""


def parse(text: str) -> dict[str, Any]:
    """Return the document. Raises NotToml."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    if long := _LONG_KEY.search(text):
        raise TooLarge(f"a key of more than {MOST_PARTS} parts", *Lines(text).place(long.start()))
    try:
        document: dict[str, Any] = tomllib.loads(text)
        too_large = _has_too_large_number(document)
    except tomllib.TOMLDecodeError as error:
        message, _, at = str(error).partition(" (at ")
        place = _PLACE.match(at)
        line, column = (int(place[1]), int(place[2])) if place else (text.count("\n") + 1, None)
        raise NotToml(f"{message[:1].lower()}{message[1:]}", line, column) from None
    except RecursionError:
        raise NotToml("nested too deeply") from None
    except ValueError:
        number = _LONG_NUMBER.search(text)
        raise TooLarge("a number is too large", *(Lines(text).place(number.start()) if number else ())) from None
    if too_large:
        raise TooLarge("a number is too large")
    return document


def _has_too_large_number(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_too_large_number, value.values()))
    if isinstance(value, list):
        return any(map(_has_too_large_number, value))
    return isinstance(value, int) and not -_LARGEST <= value < _LARGEST
