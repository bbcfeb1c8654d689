"""Numbers of things in words."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number of things as in `1 error`, `2 errors`, `16,384 micro-batches`."""
    plural = f"{noun}{'es' if noun.endswith(('ch', 'ss')) else 's'}"
    return f"{number:,} {noun if number == 1 else plural}"
