"""When two arrays are the same but for rounding."""

from __future__ import annotations

from tvlint.ops.field import Array

_TOLERANCE = 1e-7


def is_close(one: Array, other: Array, scale: float) -> bool:
    """Return whether two arrays differ by no more than rounding does to numbers as large as `scale`.

    An infinite number is close to itself alone, and says nothing of how large the others are.
    """
    import numpy as np

    if one.shape != other.shape:
        return False
    if not np.isfinite(scale):
        scale = float(np.abs(other[np.isfinite(other)]).max(initial=0))
    with np.errstate(invalid="ignore"):
        near = np.abs(one - other) <= _TOLERANCE * max(scale, 1e-30)
    return bool(np.all(near | (one == other)))
