"""Patterns that give each layer its kind: list expressions (`[0]*3+[1]*45`) and hybrid patterns (`M-M*|M-M*/MM`)."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\s*(\d{1,9}|[-+*(),\[\]])")
_LONGEST = 10_000
_MOST_LAYERS = 1_000_000


def list_pattern_length(text: str) -> int:
    """How many items the list has that `text` builds from literals, `+` and `*`; raises `ValueError` for other texts."""
    if len(text) > _LONGEST:
        raise ValueError("the pattern is too long")
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != "".join(text.split()):
        raise ValueError("the pattern is not a list expression")
    length, rest = _sum(tokens, 0, 0)
    if rest != len(tokens) or length is None:
        raise ValueError("the pattern is not a list expression")
    return length


def hybrid_layers(pattern: str) -> int:
    """How many layers the main part of a hybrid pattern has."""
    return len(_main(pattern).replace("|", ""))


def hybrid_segments(pattern: str) -> int:
    """Into how many pipeline segments a hybrid pattern is cut."""
    return _main(pattern).count("|") + 1


def _main(pattern: str) -> str:
    if any(character in pattern for character in "$'\" "):
        raise ValueError("the pattern is quoted or holds a variable")
    return pattern.split("/")[0]


def _sum(tokens: list[str], place: int, depth: int) -> tuple[int | None, int]:
    total, place = _product(tokens, place, depth)
    while place < len(tokens) and tokens[place] == "+":
        more, place = _product(tokens, place + 1, depth)
        total = None if total is None or more is None else total + more
    return total, place


def _product(tokens: list[str], place: int, depth: int) -> tuple[int | None, int]:
    length, place = _factor(tokens, place, depth)
    while length is not None and place + 1 < len(tokens) and tokens[place] == "*":
        if not tokens[place + 1].isdigit():
            return None, len(tokens)
        length *= int(tokens[place + 1])
        place += 2
        if length > _MOST_LAYERS:
            raise ValueError("the pattern has more layers than any model")
    return length, place


def _factor(tokens: list[str], place: int, depth: int) -> tuple[int | None, int]:
    opening = tokens[place] if place < len(tokens) else ""
    if opening == "(" and depth < 20:
        length, place = _sum(tokens, place + 1, depth + 1)
        return (length, place + 1) if place < len(tokens) and tokens[place] == ")" else (None, len(tokens))
    if opening != "[" or "]" not in tokens[place:]:
        return None, len(tokens)
    end = tokens.index("]", place)
    items = [item for item in tokens[place + 1 : end] if item != ","]
    return (len(items), end + 1) if all(item.isdigit() for item in items) else (None, len(tokens))
