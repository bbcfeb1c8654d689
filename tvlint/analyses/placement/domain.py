"""Values of the placement analysis: how a local tensor lies on every mesh axis, and what is wrong with its use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tvlint.ir.placement import Invariant, Partial, Placement, Replicate, Shard

Where = tuple[str, int]
"""A segment and the position of an operator in it."""


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Every rank of the axis holds the whole value, its pieces along `dim` in the order `order` in place of 0, 1, 2, ..."""

    dim: int
    order: tuple[int, ...]


On = Placement | Shuffled | None
"""How a value lies on one axis; None is unknown."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A local tensor: its placement on each axis (absent: unknown), and the operator that made it partial there."""

    on: Mapping[str, On]
    origin: Mapping[str, Where] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Defect:
    """A misuse of a placement at an operator; `rule` names it. `made` is the operator that gave `name` its placement;
    `has` is that placement."""

    rule: str
    where: Where
    name: str
    axis: str
    has: str = ""
    operator: str = ""
    other: str = ""
    made: Where | None = None
    ranks: tuple[int, ...] = ()


def is_whole(placement: On) -> bool:
    """Return whether every rank of the axis holds the whole, complete value."""
    return isinstance(placement, Replicate | Invariant)


def words(placement: On) -> str:
    """Return a placement as messages write it."""
    if isinstance(placement, Shard):
        order = f", order={[list(pieces) for pieces in placement.order]}".replace(" ", "") if placement.order else ""
        return f"S({placement.dim}{order})"
    if isinstance(placement, Shuffled):
        return f"R with the pieces of dimension {placement.dim} in the order {list(placement.order)}"
    if isinstance(placement, Partial):
        return "P" if placement.reduce == "sum" else f"P({placement.reduce})"
    if isinstance(placement, Invariant):
        return "I"
    return "R" if isinstance(placement, Replicate) else "?"


def same(left: On, right: On) -> bool:
    """Return whether two known placements say the same; Invariant and Replicate hold the same values."""
    if is_whole(left) and is_whole(right):
        return True
    return left == right
