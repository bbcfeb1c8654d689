"""Lines of a topology in the terminal: names and values, and groups of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tvlint.plurals import counted
from tvlint.reporters.escape.terminal import Line, Span, Style, line
from tvlint.reporters.escape.visible import visible
from tvlint.reporters.text.topology_ranks import examples
from tvlint.topology.grid import GroupKind

NAME = 20
"""Columns before a value."""


def heading(text: str) -> Line:
    """Return a title."""
    return line(Span(text, Style.BOLD))


def titled(title: str, lines: Iterable[str]) -> Iterator[str | Line]:
    """Yield an empty line, the title and the lines."""
    yield ""
    yield heading(title)
    yield from lines


def rows(named: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """Names and values, each value below its beginning where it takes several lines."""
    for name, value in named:
        yield from wrapped(visible(value), f"  {name:<{NAME - 2}} ", width)


def wrapped(text: str, lead: str, width: int) -> Iterator[str]:
    """`text` behind `lead`, its further lines below its first."""
    room = max(20, width - len(lead))
    held = ""
    for word in text.split(" "):
        if held and len(held) + 1 + len(word) > room:
            yield lead + held
            lead, held = " " * len(lead), word
        else:
            held = f"{held} {word}" if held else word
    yield lead + held


def groups(kinds: Sequence[GroupKind], width: int) -> Iterator[str]:
    """Yield a line for each kind of group: its name, how many there are, and some of them."""
    said = [f"{counted(kind.count, 'group')} of {kind.size:,}" for kind in kinds]
    room = max(map(len, said), default=0) + 2
    for kind, count in zip(kinds, said, strict=True):
        yield f"  {kind.name:<{NAME - 2}} {count:<{room}}{examples(kind, width - NAME - room - 1)}"
