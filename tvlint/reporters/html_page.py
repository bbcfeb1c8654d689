"""What every HTML page is made of: its frame, and words from files, escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from tvlint.reporters.html_style import STYLE
from tvlint.reporters.visible import visible

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(heading: str, subtitle: str, body: str, version: str, title: str = "", style: str = "") -> str:
    """A page that loads nothing and runs nothing; `body` is HTML, `style` is added to the style sheet, the rest is text."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>tvlint: {words(title or subtitle)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n"
        f"<header><h1>{words(heading)}</h1><p>{words(subtitle)}</p></header>\n<main>\n{body}\n</main>\n"
        f"<footer>tvlint {words(version)}</footer>\n</body>\n</html>\n"
    )


def words(text: str) -> str:
    """Text as it stands."""
    return escape(visible(text))


def code(text: str) -> str:
    """A name or a place."""
    return f"<code>{words(text)}</code>"


def sentence(text: str) -> str:
    """Words with the names in backticks as code."""
    parts = visible(text).split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))
    return "".join(code(part) if index % 2 else escape(part) for index, part in enumerate(parts))


def rows(pairs: Iterable[tuple[str, str]]) -> str:
    """A list of names and values, both HTML already; empty values are left out."""
    listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in pairs if value)
    return f"<dl>{listed}</dl>" if listed else ""
