"""Texts and numbers that a Python program computes from others, as pieces that know where they stand."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tvlint.readers.shell.values import LONGEST, Hole, Piece, Span, Text, from_outside, known_text

PLACEHOLDER = re.compile(r"\{(\w*)\}")
"""What `format` fills in."""
DIRECTIVE = re.compile(r"%(?:\((\w+)\))?[sdi]")
"""What `%` fills in."""
_NUMBER = re.compile(r"-?\d{1,15}")
_METHODS: Mapping[str, Callable[..., str]] = {
    "replace": str.replace,
    "strip": str.strip,
    "lstrip": str.lstrip,
    "rstrip": str.rstrip,
    "lower": str.lower,
    "upper": str.upper,
}
_OPERATIONS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: int.__add__,
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
    ast.FloorDiv: int.__floordiv__,
    ast.Mod: int.__mod__,
}


def number(pieces: Sequence[Piece]) -> int | None:
    """Return the integer that is computed with; None of a text, also one of digits."""
    is_computed = len(pieces) == 1 and isinstance(pieces[0], Text) and not pieces[0].exact
    text = known_text(pieces) or ""
    return int(text) if is_computed and _NUMBER.fullmatch(text) else None


def as_number(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Return the pieces of a text as those of the number that `int` makes of it."""
    return tuple(replace(piece, exact=False) if isinstance(piece, Text) else piece for piece in pieces)


def computed(operator: ast.operator, one: Sequence[Piece], other: Sequence[Piece], span: Span) -> tuple[Piece, ...] | None:
    """Return what an operator makes of two numbers; None where one of both is none, or nothing comes of it."""
    left, right, operation = number(one), number(other), _OPERATIONS.get(type(operator))
    if left is None or right is None or operation is None:
        return None
    if right == 0 and isinstance(operator, (ast.FloorDiv, ast.Mod)):
        return None
    outside = from_outside((*one, *other))
    return (Text(str(operation(left, right)), span, exact=False, outside=outside),)


def may_be_added(one: Sequence[Piece], other: Sequence[Piece]) -> bool:
    """Return whether two texts of digits may be numbers, so that their sum is no longer text."""
    return all(_NUMBER.fullmatch(known_text(each) or "") for each in (one, other))


def changed(method: str, pieces: Sequence[Piece], given: Sequence[Sequence[Piece]], span: Span) -> tuple[Piece, ...] | None:
    """Return what a method of a text gives; None where a text or the method is not known."""
    text, words = known_text(pieces), [known_text(each) for each in given]
    known = [word for word in words if word is not None]
    if text is None or len(known) < len(words) or method not in _METHODS or _is_too_long(method, text, known):
        return None
    try:
        result = _METHODS[method](text, *known)
    except TypeError:
        return None
    return tuple(pieces) if result == text else (Text(result, span, exact=False, outside=from_outside(pieces)),)


def _is_too_long(method: str, text: str, given: Sequence[str]) -> bool:
    """Return whether a method would make a text that is longer than any that is followed."""
    old, new = given[:2] if method == "replace" and len(given) > 1 else (text, "")
    return len(text) + text.count(old) * len(new) > LONGEST


def filled(
    pieces: Sequence[Piece],
    listed: Sequence[tuple[Piece, ...]],
    named: Mapping[str, tuple[Piece, ...]],
    placeholder: re.Pattern[str] = PLACEHOLDER,
) -> list[Piece]:
    """Return the pieces of a template with what `format`, or `%`, puts into its placeholders; others stay open."""
    found: list[Piece] = []
    count = 0
    for piece in pieces:
        match = placeholder.fullmatch(piece.span.source.text, piece.span.start, piece.span.end)
        if not isinstance(piece, Hole) or match is None:
            found.append(piece)
            continue
        name = match[1] or str(count)
        count += not match[1]
        place = int(name) if name.isdecimal() and len(name) < 6 else len(listed)
        given = listed[place] if place < len(listed) else named.get(name)
        found += (piece,) if given is None else given
    return found
