"""Counts of nodes, devices and processes that files state, and how many ranks they multiply to."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

MOST_RANKS = 10**7
"""No cluster has so many ranks: a number that is as large is no count of any."""


def count_of(value: object) -> int:
    """Return the value as a count; 0 where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MOST_RANKS else 0


def product_of_counts(values: Iterable[object]) -> int | None:
    """Return how many ranks the counts multiply to; None where a value, or the product, is no count."""
    return count_of(prod(map(count_of, values))) or None
