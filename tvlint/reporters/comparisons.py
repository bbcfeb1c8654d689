"""What changed between two versions of a configuration, for people: what was written, and what follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tvlint.findings import Comparison, Difference
from tvlint.reporters.context import Context
from tvlint.reporters.markdown_words import code, inert
from tvlint.reporters.paths import relative
from tvlint.reporters.visible import display_width, visible

_LONGEST = 48


def text_of(comparison: Comparison, context: Context, paint: Callable[[str, str], str]) -> list[str]:
    """The lines of one comparison; names in one column, values in the next ones."""
    lines = [paint("1", visible(_title(comparison, context)) + ":")]
    for title, rows in (("written:", comparison.written), ("follows:", comparison.follows)):
        if not rows:
            continue
        lines.append(f"  {paint('2', title)}")
        width = max(display_width(visible(row.name)) for row in rows)
        for row in rows:
            name = visible(row.name)
            before, after = (_short(value) for value in (row.before, row.after))
            lines.append(f"    {name}{' ' * (width - display_width(name))}  {paint('2', before)} -> {after}")
    return lines


def markdown_of(comparison: Comparison, context: Context) -> str:
    """A table of what was written, and one of what follows."""
    rows = [f"### {code(_title(comparison, context))}\n"]
    for title, own in (("written", comparison.written), ("follows from it", comparison.follows)):
        if own:
            rows += [f"| {title} | before | after |", "|---|---|---|", *_cells(own), ""]
    return "\n".join(rows)


def _cells(rows: tuple[Difference, ...]) -> Iterator[str]:
    for row in rows:
        yield f"| {inert(visible(row.name))} | {inert(_short(row.before))} | **{inert(_short(row.after))}** |"


def _title(comparison: Comparison, context: Context) -> str:
    place = relative(comparison.path, context.root)
    return f"{place}, {comparison.section}" if comparison.section else place


def _short(value: str) -> str:
    """A value as it is shown: `not given` for none, and no longer than a line."""
    text = visible(value) or "not given"
    return text if display_width(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
