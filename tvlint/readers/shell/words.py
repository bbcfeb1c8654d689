"""Splitting expanded text into words, joining words into text, and merging what undecided branches leave behind."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tvlint.readers.shell.values import (
    Array,
    Choice,
    Fork,
    Gap,
    Hole,
    Item,
    Piece,
    Scalar,
    Span,
    Text,
    Value,
    Word,
    items_weight,
    slice_text,
    weight,
)

BLANKS = " \t\r\n"


def split(parts: Sequence[tuple[Piece, bool]]) -> list[Item]:
    """Return the words of a command argument; a part marked True is an unquoted expansion, which blanks cut into words."""
    items: list[Item] = []
    word: list[Piece] = []
    for place, (piece, splits) in enumerate(parts):
        if not splits:
            word.append(piece)
        elif isinstance(piece, Text):
            _cut(piece, word, items)
        elif word or not _ends_word(parts, place + 1):
            word.append(Hole(piece.reason, piece.span))
        elif isinstance(piece, Hole):
            items.append(Gap(piece.reason, piece.span))
        else:
            items.append(_fork(piece))
    if word:
        items.append(Word(tuple(word)))
    return items


def split_value(value: Value) -> tuple[Item, ...]:
    """Return the words that an unquoted expansion of `value` gives."""
    if isinstance(value, Array):
        return value.items
    return tuple(split([(piece, True) for piece in value.pieces]))


def quoted_value(value: Scalar) -> tuple[Item, ...]:
    """Return the word that a quoted expansion of `value` gives; none of a variable that is not set."""
    return (Word(value.pieces),) if value.pieces else ()


def _cut(piece: Text, word: list[Piece], items: list[Item]) -> None:
    start = 0
    for place, character in enumerate(piece.text):
        if character not in BLANKS:
            continue
        if place > start:
            word.append(slice_text(piece, start, place))
        if word:
            items.append(Word(tuple(word)))
            word.clear()
        start = place + 1
    if start < len(piece.text):
        word.append(slice_text(piece, start, len(piece.text)))


def _ends_word(parts: Sequence[tuple[Piece, bool]], place: int) -> bool:
    for piece, splits in parts[place:]:
        if not splits or not isinstance(piece, Text):
            return splits
        if piece.text:
            return piece.text[0] in BLANKS
    return True


def _fork(choice: Choice) -> Fork:
    alternatives = tuple(tuple(split([(piece, True) for piece in pieces])) for pieces in choice.alternatives)
    return Fork(alternatives, choice.reason, choice.span, choice.weight)


def join(items: Sequence[Item]) -> tuple[Piece, ...]:
    """`items` as one text, words separated by a blank, as `"${A[*]}"` gives it."""
    pieces: list[Piece] = []
    for item in items:
        span = (
            item.pieces[0].span if isinstance(item, Word) and item.pieces else item.span if not isinstance(item, Word) else None
        )
        if pieces and span is not None:
            pieces.append(Text(" ", span, exact=False))
        if isinstance(item, Word):
            pieces.extend(item.pieces)
        elif isinstance(item, Gap):
            pieces.append(Hole(item.reason, item.span))
        else:
            pieces.append(Choice(tuple(join(each) for each in item.alternatives), item.reason, item.span, item.weight))
    return tuple(pieces)


def merge(values: Sequence[Value], reason: str, span: Span) -> Value:
    """Return what a variable holds after a branch that was not decided: the common beginning, then a choice."""
    firsts: dict[Hashable, Value] = {}
    for value in values:
        firsts.setdefault(_key(value), value)
    distinct = list(firsts.values())
    if len(distinct) == 1:
        return distinct[0]
    scalars = [value for value in distinct if isinstance(value, Scalar)]
    if len(scalars) == len(distinct):
        lists = [value.pieces for value in scalars]
        common = _common([list(pieces) for pieces in lists])
        rest = tuple(pieces[common:] for pieces in lists)
        heavy = 1 + sum(weight(pieces) for pieces in rest)
        between = (Text(" ", span, exact=False),) if all(map(_begins_a_word, rest)) else ()
        return Scalar((*lists[0][:common], *between, Choice(rest, reason, span, heavy)))
    arrays = [split_value(value) for value in distinct]
    common = _common([list(items) for items in arrays])
    ends = tuple(items[common:] for items in arrays)
    heavy = 1 + sum(items_weight(items) for items in ends)
    return Array((*arrays[0][:common], Fork(ends, reason, span, heavy)))


def _begins_a_word(pieces: Sequence[Piece]) -> bool:
    """Return whether what a branch adds to a text, if anything, stands apart from what was there."""
    first = next((piece for piece in pieces if not isinstance(piece, Text) or piece.text), None)
    return first is None or (isinstance(first, Text) and first.text[0] in BLANKS)


def _key(value: Value) -> Hashable:
    """Return what is equal for values that hold the same text, as long as they live."""
    if isinstance(value, Scalar):
        return (Scalar, *_key_pieces(value.pieces))
    return (Array, *(tuple(_key_pieces(item.pieces)) if isinstance(item, Word) else id(item) for item in value.items))


def _common(lists: list[list[Item]] | list[list[Piece]]) -> int:
    count = 0
    for column in zip(*lists, strict=False):
        if not all(_same(column[0], each) for each in column[1:]):
            break
        count += 1
    return count


def _same(one: Item | Piece, other: Item | Piece) -> bool:
    if one is other:
        return True
    if isinstance(one, Text) and isinstance(other, Text):
        return one.text == other.text
    if isinstance(one, Word) and isinstance(other, Word):
        return _key_pieces(one.pieces) == _key_pieces(other.pieces)
    return False


def _key_pieces(pieces: Sequence[Piece]) -> list[object]:
    key: list[object] = []
    for piece in pieces:
        if not isinstance(piece, Text):
            key.append(id(piece))
        elif key and isinstance(key[-1], str):
            key[-1] += piece.text
        else:
            key.append(piece.text)
    return key
