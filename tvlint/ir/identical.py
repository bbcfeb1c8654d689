"""Identity as equality, for what is remembered of one object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Held = TypeVar("Held")


@dataclass(frozen=True, slots=True, eq=False)
class Identical(Generic[Held]):
    """An object that is equal to itself alone: plans that are equal may come from different lines of different files."""

    held: Held

    def __eq__(self, other: object) -> bool:
        """Return whether the other is this object."""
        return isinstance(other, Identical) and other.held is self.held

    def __hash__(self) -> int:
        """Return a number for the object, which is its own as long as this lives."""
        return id(self.held)
