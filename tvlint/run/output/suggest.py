"""Suggest the nearest known word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

_COMPARED = 6
"""Of the names that share most with a word, so many are compared with it letter by letter."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a help line for an unknown word: the nearest known one, those that hold it, or all of them where there are few."""
    names = tuple(sorted(known))
    plain = word.lower().replace("_", "-")
    near = _nearest(plain, names)
    if near:
        return f"did you mean `{near}`?"
    holding = [name for name in names if plain and plain in name]
    if len(holding or names) == 1:
        return f"did you mean `{(holding or names)[0]}`?"
    if holding or len(names) <= 20:
        listed = holding or names
        return f"one of {', '.join(f'`{name}`' for name in listed[:8])}{', ...' if len(listed) > 8 else ''}" if listed else ""
    return ""


@lru_cache(maxsize=1 << 10)
def _nearest(word: str, names: tuple[str, ...]) -> str:
    """Return the name that is most like `word`, empty where none is."""
    from difflib import get_close_matches

    shared: Counter[str] = Counter()
    if len(word) <= 4 * max(map(len, names), default=0):
        index = _by_pair(names)
        for pair in _pairs(word):
            shared.update(index.get(pair, ()))
    candidates = sorted(shared, key=lambda name: (-shared[name], abs(len(name) - len(word)), name))[:_COMPARED]
    bare = {name.lstrip("-"): name for name in candidates}
    return next((bare[name] for name in get_close_matches(word.lstrip("-"), bare, n=1, cutoff=0.6)), "")


@lru_cache(maxsize=8)
def _by_pair(names: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the names that hold each pair of letters, their ends counted as letters."""
    found: dict[str, list[str]] = {}
    for name in names:
        for pair in _pairs(name):
            found.setdefault(pair, []).append(name)
    return found


def _pairs(word: str) -> set[str]:
    padded = f" {word} "
    return {padded[place : place + 2] for place in range(len(padded) - 1)}
