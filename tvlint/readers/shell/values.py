"""Abstract values of shell variables and words: text with its place, holes, and undecided choices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TypeAlias

from tvlint.ir.lines import Lines
from tvlint.ir.location import Location
from tvlint.ir.values import dataclass

HEAVIEST = 4096
"""A value that weighs more (`LONGEST` characters of text) is given up as unknown."""
_PER_WEIGHT = 64
LONGEST = _PER_WEIGHT * HEAVIEST


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One file of shell text; offsets count code points, `byte_offsets` turns the parser's bytes into them."""

    path: str
    text: str
    data: bytes
    lines: Lines
    byte_offsets: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of code points of a source."""

    source: Source
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Text:
    """Known text. `exact`: it stands verbatim at `span`. `outside`: an environment variable or argument may replace it."""

    text: str
    span: Span
    exact: bool = True
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Hole:
    """Unknown text, and why it is unknown."""

    reason: str
    span: Span


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several texts; which one was not decided."""

    alternatives: tuple[tuple[Piece, ...], ...]
    reason: str
    span: Span
    weight: int


Piece: TypeAlias = "Text | Hole | Choice"


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """Any number of unknown words, none included."""

    reason: str
    span: Span


@dataclass(frozen=True, slots=True)
class Fork:
    """One of several lists of words; which one was not decided."""

    alternatives: tuple[tuple[Item, ...], ...]
    reason: str
    span: Span
    weight: int


Item: TypeAlias = "Word | Gap | Fork"


@dataclass(frozen=True, slots=True)
class Scalar:
    """The value of a plain variable."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """The value of an indexed array."""

    items: tuple[Item, ...]


Value: TypeAlias = Scalar | Array


def source_of(path: str, data: bytes) -> Source:
    """Return the file at `path` with the content `data`; each run of bytes that are not UTF-8 is one replacement character."""
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    encoded = text.encode()
    offsets: tuple[int, ...] | None = None
    if len(encoded) != len(text):
        offsets = (0, *accumulate((byte & 0xC0) != 0x80 for byte in encoded))
    return Source(path, text, encoded, Lines(text), offsets)


def span_of_bytes(source: Source, start: int, end: int) -> Span:
    """The span of the bytes `start` to `end` of `source.data`."""
    if source.byte_offsets is None:
        return Span(source, start, end)
    return Span(source, source.byte_offsets[start], source.byte_offsets[end])


def location_of(span: Span) -> Location:
    """Return where `span` stands, in lines and columns."""
    return span.source.lines.location(span.source.path, span.start, span.end)


def line_of(span: Span) -> int:
    """Return the line on which `span` starts."""
    return span.source.lines.place(span.start)[0]


def known_text(pieces: Iterable[Piece]) -> str | None:
    """Return the text of `pieces`; None where a part of it is unknown."""
    parts: list[str] = []
    for piece in pieces:
        if not isinstance(piece, Text):
            return None
        parts.append(piece.text)
    return "".join(parts)


def leading_text(pieces: Sequence[Piece]) -> str:
    """Return the known text that `pieces` begin with."""
    parts: list[str] = []
    for piece in pieces:
        if not isinstance(piece, Text):
            break
        parts.append(piece.text)
    return "".join(parts)


def unknown_reason(pieces: Iterable[Piece]) -> str:
    """Return why the text of `pieces` is unknown; empty where it is known."""
    return next((piece.reason for piece in pieces if not isinstance(piece, Text)), "")


def from_outside(pieces: Iterable[Piece]) -> bool:
    """Return whether a part of the text is only a default that the environment or an argument may replace."""
    return any(isinstance(piece, Text) and piece.outside for piece in pieces)


def may_be(pieces: Sequence[Piece], text: str) -> bool:
    """Return whether what is open of `pieces` leaves it possible that they are `text`."""
    if from_outside(pieces) or any(isinstance(piece, Hole) for piece in pieces):
        return True
    choice = pieces[0] if len(pieces) == 1 else None
    if not isinstance(choice, Choice):
        return False
    return any(known_text(alternative) == text or may_be(alternative, text) for alternative in choice.alternatives)


def span_of(pieces: Sequence[Piece]) -> Span:
    """Return where `pieces` stand: all of them where they stand side by side, else the first unknown one, else the first."""
    first = pieces[0].span
    if len(pieces) == 1:
        return first
    hole = next((piece for piece in pieces if not isinstance(piece, Text)), None)
    if hole is not None:
        return hole.span
    end = first.end
    for piece in pieces[1:]:
        if piece.span.source is not first.source or not 0 <= piece.span.start - end <= 3:
            return first
        end = piece.span.end
    return Span(first.source, first.start, end)


def slice_text(piece: Text, start: int, end: int) -> Text:
    """The characters `start` to `end` of `piece`, with their own place."""
    if not piece.exact:
        return Text(piece.text[start:end], piece.span, False, piece.outside)
    place = Span(piece.span.source, piece.span.start + start, piece.span.start + end)
    return Text(piece.text[start:end], place, True, piece.outside)


def after(pieces: Sequence[Piece], count: int) -> tuple[Piece, ...]:
    """Return what remains of `pieces` after the first `count` characters, which must be known."""
    rest: list[Piece] = []
    for piece in pieces:
        if not isinstance(piece, Text) or count <= 0:
            rest.append(piece)
        elif count < len(piece.text):
            rest.append(slice_text(piece, count, len(piece.text)))
            count = 0
        else:
            count -= len(piece.text)
    return tuple(rest)


def before(pieces: Sequence[Piece], count: int) -> tuple[Piece, ...]:
    """The first `count` characters of `pieces`, which must be known."""
    taken: list[Piece] = []
    for piece in pieces:
        if count <= 0 or not isinstance(piece, Text):
            break
        taken.append(piece if len(piece.text) <= count else slice_text(piece, 0, count))
        count -= len(piece.text)
    return tuple(taken)


def weight(pieces: Iterable[Piece]) -> int:
    """Return how much `pieces` weigh against HEAVIEST."""
    return sum(
        1 + len(piece.text) // _PER_WEIGHT if isinstance(piece, Text) else piece.weight if isinstance(piece, Choice) else 1
        for piece in pieces
    )


def items_weight(items: Iterable[Item]) -> int:
    """Return how much `items` weigh against HEAVIEST."""
    return sum(
        item.weight if isinstance(item, Fork) else 1 + weight(item.pieces) if isinstance(item, Word) else 1 for item in items
    )


def bounded(value: Value, span: Span) -> Value:
    """`value`, or a hole where it is too large to follow."""
    if isinstance(value, Scalar):
        return value if weight(value.pieces) <= HEAVIEST else Scalar((Hole("the value is too long to follow", span),))
    return value if items_weight(value.items) <= HEAVIEST else Array((Gap("the array is too long to follow", span),))
