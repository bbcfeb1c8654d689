"""A rule page as text for a terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from tvlint.rule import Rule
from tvlint.rulebook.pages import explanation_of

_HEADING = re.compile(r"#{1,6} (.*)")
_ITEM = re.compile(r"(?:[-*]|\d+\.) ")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_LABELS = {"invalid": "wrong", "valid": "right"}


def explain(rule: Rule, width: int) -> str:
    """Return the page of `rule`, wrapped to `width` columns: what it says, why it matters, examples, where it comes from."""
    width = max(width, 20)
    lines = [f"{rule.name} ({rule.severity.value}, {rule.kind.value} rule)", *_wrapped(rule.summary, width), ""]
    lines += _body(explanation_of(rule), width)
    if rule.when or rule.require:
        lines += ["", "Condition"]
        lines += _wrapped(f"when: {rule.when or 'always'}", width, "  ")
        lines += _wrapped(f"require: {rule.require}", width, "  ")
    if rule.frameworks:
        lines += ["", "Holds for", *(line for each in rule.frameworks.items() for line in _wrapped(_range(*each), width, "  "))]
    if rule.sources:
        lines += ["", "Sources", *(f"  {source}" for source in rule.sources)]
    return "\n".join(lines).rstrip() + "\n"


def _range(framework: str, versions: str) -> str:
    return f"{framework}, any version" if versions == "*" else f"{framework} {versions}"


def _body(text: str, width: int) -> Iterator[str]:
    fence = ""
    paragraph: list[str] = []
    for line in text.strip("\n").split("\n"):
        if fence:
            if line.startswith(fence):
                fence = ""
            else:
                yield f"    {line}".rstrip()
            continue
        starts_block = not line.strip() or line.startswith("```") or _HEADING.match(line) or _ITEM.match(line)
        if starts_block and paragraph:
            yield from _wrapped(" ".join(paragraph), width)
            paragraph = []
        if line.startswith("```"):
            fence = line[: len(line) - len(line.lstrip("`"))]
            yield _label(line[len(fence) :])
        elif heading := _HEADING.match(line):
            yield heading[1]
        elif not line.strip():
            yield ""
        else:
            paragraph.append(line.strip())
    if paragraph:
        yield from _wrapped(" ".join(paragraph), width)


def _label(info: str) -> str:
    words = info.split()
    verdict = next((_LABELS[word] for word in words if word in _LABELS), "")
    return f"  {verdict}:" if verdict else ""


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    later = indent + ("  " if indent or _ITEM.match(text) else "")
    return textwrap.wrap(_LINK.sub(r"\1", text), width, initial_indent=indent, subsequent_indent=later, break_on_hyphens=False)
