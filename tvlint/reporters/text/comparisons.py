"""Text of the differences between two versions of a configuration: as written, and as derived."""

from __future__ import annotations

from collections.abc import Iterable

from tvlint.findings import Comparison, Difference
from tvlint.plurals import counted
from tvlint.reporters.context import Context
from tvlint.reporters.escape.markdown import Block, Bold, Code, Heading, Phrase, Table
from tvlint.reporters.escape.terminal import Line, Span, Style, line
from tvlint.reporters.escape.visible import display_width, visible
from tvlint.reporters.text.paths import relative

_LONGEST = 48


def grouped(comparisons: Iterable[Comparison]) -> list[tuple[Comparison, int]]:
    """Return the comparisons, each with how many others say the same of other configurations, which are left out."""
    found: dict[object, list[Comparison]] = {}
    for comparison in comparisons:
        found.setdefault((comparison.written, comparison.follows), []).append(comparison)
    return [(same[0], len(same) - 1) for same in found.values()]


def text_of(comparison: Comparison, others: int, context: Context) -> list[Line]:
    """Return the lines of one comparison; names in one column, values in the next ones."""
    lines = [line(Span(f"{_title(comparison, others, context)}:", Style.BOLD))]
    for title, rows in (("written:", comparison.written), ("follows:", comparison.follows)):
        if not rows:
            continue
        lines.append(line("  ", Span(title, Style.DIM)))
        width = max(display_width(visible(row.name)) for row in rows)
        for row in rows:
            name = visible(row.name)
            before, after = _short(row)
            gap = " " * (width - display_width(name) + 2)
            lines.append(line(f"    {name}{gap}", Span(before, Style.DIM), f" -> {after}"))
    return lines


def markdown_of(comparison: Comparison, others: int, context: Context) -> tuple[Block, ...]:
    """Return a table of what was written, and one of what follows."""
    tables = (("written", comparison.written), ("follows from it", comparison.follows))
    head = Heading(3, (Code(_title(comparison, others, context)),))
    return (
        head,
        *(Table((title, "before", "after"), tuple(map(_cells, differences))) for title, differences in tables if differences),
    )


def _cells(row: Difference) -> tuple[Phrase, ...]:
    before, after = _short(row)
    return (row.name,), (before,), (Bold(after),)


def _title(comparison: Comparison, others: int, context: Context) -> str:
    place = relative(comparison.path, context.root)
    place = f"{place}, {comparison.section}" if comparison.section else place
    return f"{place}, and {counted(others, 'more configuration')} in the same way" if others else place


def _short(row: Difference) -> tuple[str, str]:
    """Return both values as they are shown: `not given` for none, no longer than a line, and where they differ."""
    before, after = (visible(value) or "not given" for value in (row.before, row.after))
    ends = min(len(before), len(after))
    same = next((at for at in range(ends) if before[at] != after[at]), ends)
    hidden = same > _LONGEST // 2 and max(display_width(before), display_width(after)) > _LONGEST
    start = same - _LONGEST // 4 if hidden else 0
    return _clip(before, start), _clip(after, start)


def _clip(text: str, start: int) -> str:
    text = f"…{text[start:]}" if start else text
    return text if display_width(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
