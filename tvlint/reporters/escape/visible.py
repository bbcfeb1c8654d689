"""Text from a file, made safe to show: nothing in it can move the cursor, reorder the line or hide."""

from __future__ import annotations

import re

from tvlint.ir.patterns import Pattern

_HIDDEN = Pattern(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"  # bidi, zero-width, separators
    "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\U0001d173-\U0001d17a"  # fillers, which look like nothing
    "\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff"  # more of them, non-characters
    "\ud800-\udfff"  # lone surrogates
    "\U000e0000-\U000e0fff]"  # tags, and selectors that carry data
    "|##(?=\\[|vso\\[)"  # `##[command]`: continuous integration services obey it wherever it stands in a line
)


def _escape(match: re.Match[str]) -> str:
    if match[0] == "##":
        return "#\\x23"
    code = ord(match[0])
    short = {9: "\\t", 10: "\\n", 13: "\\r"}.get(code)
    if short is not None:
        return short
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible(text: str) -> str:
    """`text` on one line, every control, bidi and invisible character spelled as its escape."""
    if text.isascii() and text.isprintable() and "##" not in text:
        return text
    return _HIDDEN.sub(_escape, text)


def visible_source(text: str) -> str:
    """Return a source line as `visible` gives it, with tabs as four blanks."""
    return visible(text.replace("\t", "    "))


def display_width(text: str) -> int:
    """Return how many terminal columns `text` takes."""
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    import unicodedata

    if unicodedata.combining(character) or character in "\u200c\u200d\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
