"""Ranks as points of a grid of named axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Axis:
    """One named direction of a mesh (`dp`, `pp`, `cp`, `ep`, `tp`)."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Mesh:
    """A grid of ranks; the last axis varies fastest, so rank = row-major index of its coordinates."""

    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        return prod(axis.size for axis in self.axes)

    def axis_size(self, name: str) -> int:
        """Return the size of axis `name`; 1 where the mesh has no such axis."""
        return next((axis.size for axis in self.axes if axis.name == name), 1)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return the coordinate of `rank` on every axis."""
        found: dict[str, int] = {}
        for axis in reversed(self.axes):
            rank, found[axis.name] = divmod(rank, axis.size)
        return found

    def rank(self, coordinates: dict[str, int]) -> int:
        """Return the rank at `coordinates`; an axis that is left out counts as 0."""
        rank = 0
        for axis in self.axes:
            rank = rank * axis.size + coordinates.get(axis.name, 0)
        return rank

    def first(self, rank: int, names: tuple[str, ...]) -> int:
        """Return the lowest of the ranks that differ from `rank` only on the axes `names`."""
        coordinates = self.coordinates(rank)
        return self.rank({name: at for name, at in coordinates.items() if name not in names})

    def along(self, rank: int, names: tuple[str, ...]) -> tuple[int, ...]:
        """Return the ranks that differ from `rank` only on the axes `names`, ascending."""
        return self.ranks_at({name: at for name, at in self.coordinates(rank).items() if name not in names})

    def ranks_at(self, coordinates: Mapping[str, int]) -> tuple[int, ...]:
        """Return all ranks that have these coordinates on the axes that are named, ascending."""
        ranks = [0]
        for axis in self.axes:
            steps = (coordinates[axis.name],) if axis.name in coordinates else range(axis.size)
            ranks = [base * axis.size + step for base in ranks for step in steps]
        return tuple(ranks)
