"""When two arrays are the same but for rounding."""

from __future__ import annotations

from tvlint.ops.field import Array

_TOLERANCE = 1e-7


def is_close(one: Array, other: Array, scale: float) -> bool:
    import numpy as np

    return one.shape == other.shape and bool(np.all(np.abs(one - other) <= _TOLERANCE * max(scale, 1e-30)))
