"""Literal text of a script without its quotes and backslashes, each run of it with its place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tvlint.readers.shell.state import State
from tvlint.readers.shell.values import Piece, Text

if TYPE_CHECKING:
    from tree_sitter import Node

ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}


def literal(state: State, start: int, end: int) -> Text:
    """The text between two bytes as it stands."""
    return Text(state.source.data[start:end].decode(), state.span_of(start, end))


def unescaped(state: State, start: int, end: int, special: str, anything: bool) -> list[tuple[Piece, bool]]:
    """Return the text between two bytes without backslashes, which escape `anything`, or `special` characters alone."""
    data = state.source.data[start:end]
    if b"\\" not in data:
        return [(literal(state, start, end), False)]
    parts: list[tuple[Piece, bool]] = []
    begin = place = 0
    while (place := data.find(b"\\", place)) != -1 and place + 1 < len(data):
        following = data[place + 1 : place + 2]
        if not anything and following not in special.encode() + b"\n":
            place += 2
            continue
        if place > begin:
            parts.append((literal(state, start + begin, start + place), False))
        begin = place + 2 if following == b"\n" else place + 1
        place += 2
    if begin < len(data):
        parts.append((literal(state, start + begin, end), False))
    return parts


def ansi_string(state: State, node: Node) -> Text:
    """Return the text of `$'...'`."""
    raw = state.text(node)[2:-1]
    if "\\" not in raw:
        return literal(state, node.start_byte + 2, node.end_byte - 1)
    text = re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[0]), raw)
    return Text(text, state.span(node), exact=False)
