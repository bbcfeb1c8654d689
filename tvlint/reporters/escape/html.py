"""HTML as a tree of elements; their text and the values of their attributes are escaped where the tree is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.visible import visible

Tag: TypeAlias = Literal[
    "article", "b", "body", "br", "caption", "code", "dd", "details", "div", "dl", "dt", "figcaption", "figure", "footer",
    "h1", "h2", "h3", "h4", "head", "header", "html", "li", "main", "mark", "meta", "ol", "p", "pre", "span", "style",
    "summary", "table", "td", "th", "title", "tr", "ul", "rect", "svg", "text",
]  # fmt: skip
"""None of them runs or loads anything."""
_ATTRIBUTES = frozenset(
    (
        *("charset", "class", "content", "height", "http-equiv", "lang", "name", "open", "role", "rx", "text-anchor"),
        *("viewBox", "width", "x", "y"),
    )
)
_VOID = frozenset(("br", "meta", "rect"))
_APART = frozenset(("article", "body", "footer", "h2", "head", "header", "main", "meta", "style", "title"))
"""Elements that start a line of their own."""


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a page."""

    tag: Tag
    attributes: tuple[tuple[str, str], ...] = ()
    children: tuple[Content, ...] = ()


Content: TypeAlias = "str | Element | Sequence[Content]"
"""What an element holds: text as data, an element, or several."""


def tag(name: Tag, /, *children: Content, kind: str = "", **attributes: str | float) -> Element:
    """Return an element of class `kind`; `_` in the name of an attribute is written `-`."""
    named = ((key.replace("_", "-"), _value(value)) for key, value in attributes.items())
    all_named = (*((("class", kind),) if kind else ()), *named)
    if unknown := {key for key, _ in all_named} - _ATTRIBUTES:
        raise ValueError(f"no attribute of a report: {unknown}")
    return Element(name, all_named, children)


def html(root: Element) -> Escaped:
    """Return the document with the element `root`."""
    return Escaped(f"<!doctype html>\n{markup(root)}\n".replace("##[", "#&#35;["))


def markup(content: Content) -> str:
    """Return the content as it stands in a document."""
    return "".join(_markup(content))


def _markup(content: Content) -> Iterator[str]:
    if isinstance(content, str):
        yield _text(content)
    elif isinstance(content, Element):
        yield from _element(content)
    else:
        for each in content:
            yield from _markup(each)


def _element(element: Element) -> Iterator[str]:
    attributes = "".join(f' {name}="{_text(value)}"' for name, value in element.attributes)
    line = "\n" if element.tag in _APART else ""
    if element.tag in _VOID and not element.children:
        yield f"{line}<{element.tag}{attributes}{'/' if element.tag == 'rect' else ''}>"
        return
    yield f"{line}<{element.tag}{attributes}>"
    if element.tag == "style":
        yield "".join(str(child) for child in element.children).replace("<", "\\3c ")
    else:
        yield from _markup(element.children)
    yield f"</{element.tag}>"


def _text(text: str) -> str:
    text = visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;")


def _value(value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)
