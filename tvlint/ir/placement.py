"""Placements of a logical tensor on one mesh axis, in the terms of DTensor and of replication typing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Replicate:
    """Every rank of the axis holds the whole value."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Concatenating the ranks along `dim`, in the order of their coordinate, gives the value.

    `order` overrides that order: `order[c]` lists the pieces that coordinate `c` holds, counted over the whole dimension
    (zig-zag context parallelism over two ranks is `((0, 3), (1, 2))`). Empty means one contiguous piece a rank.
    `parts` lists the lengths of packed sub-tensors that are each split on their own (an interleaved QKV weight is
    `parts=(q, k, v)`). Empty means the dimension is one piece.
    """

    dim: int
    order: tuple[tuple[int, ...], ...] = ()
    parts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Partial:
    """Reducing the ranks with `reduce` (`sum`, `max`, `avg`, ...) gives the value."""

    reduce: str = "sum"


@dataclass(frozen=True, slots=True)
class Invariant:
    """Replicated, and its gradient is replicated too: where gradients are judged (R/I/V/P typing)."""


Placement: TypeAlias = Replicate | Shard | Partial | Invariant
