"""Parts that every HTML page shares: the frame, names, sentences and lists."""

from __future__ import annotations

from collections.abc import Iterable

from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.html import Content, Element, html, tag
from tvlint.reporters.html.style import STYLE

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(heading: str, subtitle: str, body: Content, version: str, title: str = "", style: str = "") -> Escaped:
    """Return a page that loads nothing and runs nothing; `style` is added to the style sheet."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"tvlint: {title or subtitle}"),
        tag("style", STYLE, style),
    )
    header = tag("header", tag("h1", heading), tag("p", subtitle))
    return html(tag("html", head, tag("body", header, tag("main", body), tag("footer", f"tvlint {version}")), lang="en"))


def code(text: str) -> Element:
    """Return a name or a place."""
    return tag("code", text)


def sentence(text: str) -> Content:
    """Return words, with the names in backticks as code."""
    parts = text.split("`")
    if len(parts) == 1 or len(parts) % 2 == 0:
        return text
    return [code(part) if index % 2 else part for index, part in enumerate(parts)]


def rows(pairs: Iterable[tuple[Content, Content]]) -> Content:
    """Return a list of names and values; empty values are left out."""
    listed = [(tag("dt", name), tag("dd", value)) for name, value in pairs if value]
    return tag("dl", listed) if listed else ()


def svg(width: float, height: float, content: Content) -> Element:
    """Return a drawing that scrolls where it is wider than the page."""
    return tag("div", drawing(width, height, content), kind="scroll")


def drawing(width: float, height: float, content: Content) -> Element:
    """Return a drawing."""
    size = f"{width:.0f}", f"{height:.0f}"
    return tag("svg", content, role="img", width=size[0], height=size[1], viewBox=f"0 0 {size[0]} {size[1]}")
