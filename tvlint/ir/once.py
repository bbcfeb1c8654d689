"""Of several values that are alike in something, the first."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

_Value = TypeVar("_Value")


def first_of_each(values: Iterable[_Value], key: Callable[[_Value], Hashable]) -> Iterator[_Value]:
    """Yield the values of which none before had the same key."""
    seen = set[Hashable]()
    for value in values:
        if (found := key(value)) not in seen:
            seen.add(found)
            yield value
