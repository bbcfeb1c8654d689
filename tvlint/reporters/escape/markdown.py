"""GitHub Markdown as blocks of text on which nothing acts: not the renderer, not GitHub's mentions and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.visible import visible


@dataclass(frozen=True, slots=True)
class Code:
    """A name or a place, as code."""

    text: str


@dataclass(frozen=True, slots=True)
class Bold:
    """Words that stand out."""

    words: Words


@dataclass(frozen=True, slots=True)
class Italic:
    """Words aside."""

    words: Words


Words: TypeAlias = "str | Code | Bold | Italic"
"""A part of a line; in a `str`, names in backticks are code."""
Phrase: TypeAlias = tuple[Words, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A title."""

    level: int
    phrase: Phrase


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A line of words."""

    phrase: Phrase


@dataclass(frozen=True, slots=True)
class Preformatted:
    """Lines whose columns are kept."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells; a column named in `numbers` is set to the right."""

    head: tuple[str, ...]
    rows: tuple[tuple[Phrase, ...], ...]
    numbers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Details:
    """A list that opens on demand."""

    summary: str
    items: tuple[Phrase, ...]


Block: TypeAlias = Heading | Paragraph | Preformatted | Table | Details


_START = re.compile(r"^(\d*)([-+=.)])")


def markdown(*blocks: Block) -> Escaped:
    """Return the blocks, set apart by empty lines."""
    return Escaped("\n\n".join(map(_block, blocks)) + "\n")


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {_phrase(block.phrase)}"
    if isinstance(block, Paragraph):
        return _started(block.phrase)
    if isinstance(block, Preformatted):
        return f"<pre>{chr(10).join(_inert(visible(line)) for line in block.lines)}</pre>"
    if isinstance(block, Details):
        items = "\n".join(f"- {_started(item)}" for item in block.items)
        return f"<details><summary>{_sentence(block.summary)}</summary>\n\n{items}\n\n</details>"
    return "\n".join(_rows(block))


def _started(phrase: Phrase) -> str:
    """Return the phrase at the start of a line, where marks and numbers would make a list or a title of it, and blanks code."""
    return _START.sub(lambda match: f"{match[1]}&#{ord(match[2])};", _phrase(phrase).lstrip())


def _rows(table: Table) -> list[str]:
    rule = "|".join("--:" if name in table.numbers else "---" for name in table.head)
    rows = (" | ".join(map(_phrase, row)) for row in table.rows)
    return [f"| {' | '.join(map(_sentence, table.head))} |", f"|{rule}|", *(f"| {row} |" for row in rows)]


def _phrase(phrase: Phrase) -> str:
    return "".join(map(_words, phrase))


def _words(words: Words) -> str:
    if isinstance(words, str):
        return _sentence(words)
    if isinstance(words, Code):
        return f"<code>{_inert(visible(words.text))}</code>"
    mark = "**" if isinstance(words, Bold) else "_"
    return f"{mark}{_words(words.words)}{mark}"


def _sentence(text: str) -> str:
    parts = visible(text).split("`")
    if len(parts) % 2 == 0:
        return _inert("`".join(parts))
    return "".join(_words(Code(part)) if index % 2 else _inert(part) for index, part in enumerate(parts))


def _inert(text: str) -> str:
    """Entities stop Markdown, empty comments stop mentions, references and links that GitHub finds in rendered text."""
    text = _entities(text)
    text = re.sub(r"(@|&#35;|(?i:\bGH-))(?=\w)", r"\1<!-- -->", text)
    return re.sub(r"(?i)\b(https?|ftp|www)(?=:|\.)", r"\1<!-- -->", text)


def _entities(text: str) -> str:
    return re.sub(r"[&<>\\`*_{}\[\]#|~$]", lambda match: f"&#{ord(match[0])};", text)
