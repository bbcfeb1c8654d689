"""What somebody probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A help line for an unknown word: the nearest known one, those that hold it, or all of them where there are few."""
    from difflib import get_close_matches

    names = sorted(known)
    plain = word.lower().replace("_", "-")
    near = get_close_matches(plain, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean `{near[0]}`?"
    holding = [name for name in names if plain and plain in name]
    if holding or len(names) <= 20:
        listed = holding or names
        return f"one of {', '.join(f'`{name}`' for name in listed[:8])}{', ...' if len(listed) > 8 else ''}" if listed else ""
    return ""
