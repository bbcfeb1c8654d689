"""Patterns that give each layer its kind: list expressions (`[0]*3+[1]*45`) and hybrid patterns (`M-M*|M-M*/MM`)."""

from __future__ import annotations

from itertools import pairwise

from tvlint.ir.patterns import Pattern
from tvlint.plurals import counted

_TOKEN = Pattern(r"\s*((?:0+|[1-9][0-9]{0,8})(?![0-9])|[-+*(),\[\]])")
"""A number as Python writes it, without zeros before it, or a sign."""
_LONGEST = 10_000
_LITERAL = Pattern(r"\[\]|\[\d+(?:,\d+)*,?\]")
"""A list of numbers, with which the parser allows a comma behind the last."""
_SYMBOLS = frozenset("MGD*-E+")
_MOST_LAYERS = 100_000


def list_pattern(text: str) -> tuple[int, ...]:
    """Return the list that `text` builds from literals, `+` and `*`; raises `ValueError` for other texts."""
    if len(text) > _LONGEST:
        raise ValueError("the pattern is too long")
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != "".join(text.split()) or any(one.isdigit() and two.isdigit() for one, two in pairwise(tokens)):
        raise ValueError("the pattern is not a list expression")
    items, rest = _sum(tokens, 0, 0)
    if rest != len(tokens) or items is None:
        raise ValueError("the pattern is not a list expression")
    return items


def list_pattern_length(text: str) -> int:
    """Return how many items the list has that `text` builds; raises `ValueError` where it builds none."""
    return len(list_pattern(text))


def expert_layers(frequency: int | str | tuple[object, ...], layers: int) -> tuple[bool, ...]:
    """Return which of `layers` have experts: every n-th from the first on, or those with a 1 in a list (`([0]*3+[1]*58)`).

    Raises `ValueError` where the frequency is neither, or the list has another length.
    """
    if not 0 < layers <= _MOST_LAYERS:
        raise ValueError(f"{layers} is no number of layers")
    if isinstance(frequency, str):
        frequency = list_pattern(frequency) if "[" in frequency else _whole(frequency)
    if isinstance(frequency, int):
        if frequency < 1:
            raise ValueError(f"{frequency} is not positive")
        return tuple(number % frequency == 0 for number in range(layers))
    if len(frequency) != layers:
        raise ValueError(f"the pattern has {counted(len(frequency), 'layer')}, the model {layers}")
    return tuple(kind not in (0, False) for kind in frequency)


def _whole(text: str) -> int:
    if not text.strip().isascii() or not text.strip().isdigit() or len(text) > 9:
        raise ValueError("the pattern is neither a number nor a list expression")
    return int(text)


def hybrid_layers(pattern: str) -> int:
    """Return how many layers the main part of a hybrid pattern has."""
    return len(_main(pattern).replace("|", ""))


def hybrid_segments(pattern: str) -> int:
    """Into how many pipeline segments a hybrid pattern is cut."""
    return _main(pattern).count("|") + 1


def is_hybrid_pattern(pattern: str) -> bool:
    """Return whether Megatron reads `pattern`: known symbols, equal parts for multi-token prediction, one kind of attention.

    Raises `ValueError` where the pattern is quoted or holds a variable.
    """
    parts = [_main(pattern), *pattern.split("/")[1:]]
    if len(set(parts[1:])) > 1:
        return False
    for allowed, part in zip((_SYMBOLS | {"|"}, _SYMBOLS), parts, strict=False):
        if not allowed.issuperset(part) or ("*" in part and ("D" in part or "+" in part)):
            return False
    return True


def _main(pattern: str) -> str:
    if any(character in pattern for character in "$'\" "):
        raise ValueError("the pattern is quoted or holds a variable")
    return pattern.split("/")[0]


_Items = tuple[int, ...]


def _sum(tokens: list[str], place: int, depth: int) -> tuple[_Items | None, int]:
    total, place = _product(tokens, place, depth)
    while place < len(tokens) and tokens[place] == "+":
        more, place = _product(tokens, place + 1, depth)
        total = None if total is None or more is None else _bounded(total, 1, more)
    return total, place


def _product(tokens: list[str], place: int, depth: int) -> tuple[_Items | None, int]:
    items, place = _factor(tokens, place, depth)
    while items is not None and place + 1 < len(tokens) and tokens[place] == "*":
        if not tokens[place + 1].isdigit():
            return None, len(tokens)
        items = _bounded(items, int(tokens[place + 1]), ())
        place += 2
    return items, place


def _bounded(items: _Items, times: int, more: _Items) -> _Items:
    if len(items) * times + len(more) > _MOST_LAYERS:
        raise ValueError("the pattern has more layers than any model")
    return items * times + more


def _factor(tokens: list[str], place: int, depth: int) -> tuple[_Items | None, int]:
    opening = tokens[place] if place < len(tokens) else ""
    if opening == "(" and depth < 20:
        items, place = _sum(tokens, place + 1, depth + 1)
        return (items, place + 1) if place < len(tokens) and tokens[place] == ")" else (None, len(tokens))
    if opening != "[" or "]" not in tokens[place:]:
        return None, len(tokens)
    end = tokens.index("]", place)
    if not _LITERAL.fullmatch("".join(tokens[place : end + 1])):
        return None, len(tokens)
    return tuple(int(item) for item in tokens[place + 1 : end] if item.isdigit()), end + 1
