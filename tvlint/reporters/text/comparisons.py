"""Text of the differences between two versions of a configuration: as written, and as derived."""

from __future__ import annotations

from tvlint.findings import Comparison, Difference
from tvlint.reporters.context import Context
from tvlint.reporters.escape.markdown import Block, Bold, Code, Heading, Phrase, Table
from tvlint.reporters.escape.terminal import Line, Span, Style, line
from tvlint.reporters.escape.visible import display_width, visible
from tvlint.reporters.text.paths import relative

_LONGEST = 48


def text_of(comparison: Comparison, context: Context) -> list[Line]:
    """The lines of one comparison; names in one column, values in the next ones."""
    lines = [line(Span(f"{_title(comparison, context)}:", Style.BOLD))]
    for title, rows in (("written:", comparison.written), ("follows:", comparison.follows)):
        if not rows:
            continue
        lines.append(line("  ", Span(title, Style.DIM)))
        width = max(display_width(visible(row.name)) for row in rows)
        for row in rows:
            name = visible(row.name)
            before, after = (_short(value) for value in (row.before, row.after))
            gap = " " * (width - display_width(name) + 2)
            lines.append(line(f"    {name}{gap}", Span(before, Style.DIM), f" -> {after}"))
    return lines


def markdown_of(comparison: Comparison, context: Context) -> tuple[Block, ...]:
    """A table of what was written, and one of what follows."""
    tables = (("written", comparison.written), ("follows from it", comparison.follows))
    head = Heading(3, (Code(_title(comparison, context)),))
    return (head, *(Table((title, "before", "after"), tuple(map(_cells, own))) for title, own in tables if own))


def _cells(row: Difference) -> tuple[Phrase, ...]:
    return (row.name,), (_short(row.before),), (Bold(_short(row.after)),)


def _title(comparison: Comparison, context: Context) -> str:
    place = relative(comparison.path, context.root)
    return f"{place}, {comparison.section}" if comparison.section else place


def _short(value: str) -> str:
    """A value as it is shown: `not given` for none, and no longer than a line."""
    text = visible(value) or "not given"
    return text if display_width(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
