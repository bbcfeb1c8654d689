"""What the members of a collective do with their values, by name; the empty name is that of one that says none: it adds."""

from __future__ import annotations

ADDING = frozenset({"", "sum", "avg"})
"""Of operands that are parts of sums the result is one too."""

EXTREMES = frozenset({"max", "min"})
"""Of equal operands the result is each of them."""


def reduction_named(word: str) -> str:
    """Return the name of the reduction that an author or a framework calls `word`."""
    return "avg" if word == "mean" else word
