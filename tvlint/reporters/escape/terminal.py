"""Lines for a terminal or a log: text is shown as it is spelled, and only styles of ours colour it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from tvlint.ir.patterns import Pattern
from tvlint.ir.values import dataclass
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.visible import visible


class Style(Enum):
    """The style of a span, as parameters of the terminal's escape sequence."""

    RED = "1;31"
    YELLOW = "1;33"
    GREEN = "1;32"
    CYAN = "1;36"
    BOLD = "1"
    DIM = "2"
    PLAIN_BLUE = "34"
    PLAIN_YELLOW = "33"
    PLAIN_GREEN = "32"


@dataclass(frozen=True, slots=True)
class Span:
    """Text of one style, which leads to an address where the terminal follows links."""

    text: str
    style: Style | None = None
    link: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """Spans, one after the other."""

    spans: tuple[Span, ...]


_COMMAND = Pattern(r"^(\s*)::|##(?=\[|vso\[)")
"""What a service that runs workflows takes for a command: `::name` at the start of a line, `##[name]` anywhere in it."""


_ADDRESS = Pattern(r"https://[A-Za-z0-9./_-]+")
"""What a link may lead to: nothing that ends the sequence which holds it."""


def line(*parts: str | Span) -> Line:
    """Return the line that the parts make."""
    return Line(tuple(Span(part) if isinstance(part, str) else part for part in parts))


def terminal(lines: Iterable[str | Line], color: bool = False) -> Escaped:
    """Return the lines, each ended; no text in them moves the cursor, breaks a line, hides or is a workflow command."""
    return Escaped("".join(f"{_shown(line, color)}\n" for line in lines))


def _shown(item: str | Line, color: bool) -> str:
    if isinstance(item, str):
        return _COMMAND.sub(_spelled, visible(item))
    return _COMMAND.sub(_spelled, "".join(_painted(span, color) for span in item.spans))


def _painted(span: Span, color: bool) -> str:
    text = visible(span.text)
    if not color or not text:
        return text
    if span.style is not None:
        text = f"\x1b[{span.style.value}m{text}\x1b[0m"
    return f"\x1b]8;;{span.link}\x1b\\{text}\x1b]8;;\x1b\\" if _ADDRESS.fullmatch(span.link) else text


def _spelled(match: re.Match[str]) -> str:
    return "#\\x23" if match[1] is None else f"{match[1]}:\\x3a"
