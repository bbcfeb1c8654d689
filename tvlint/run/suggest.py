"""What somebody probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A help line for an unknown word: the nearest known one, or all of them where there are few."""
    from difflib import get_close_matches

    names = sorted(known)
    near = get_close_matches(word.lower().replace("_", "-"), names, n=1, cutoff=0.6)
    if near:
        return f"did you mean `{near[0]}`?"
    return f"one of {', '.join(f'`{name}`' for name in names)}" if 0 < len(names) <= 20 else ""
