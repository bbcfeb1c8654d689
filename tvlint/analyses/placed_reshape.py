"""Where a sharded dimension goes when a tensor is seen under another shape."""

from __future__ import annotations

from tvlint.analyses.placed import On
from tvlint.ir.placement import Shard


def reshaped(placement: On, before: tuple[int, ...] | None, after: tuple[int, ...] | None, parts: int) -> On:
    """The placement of the reshaped tensor, by local shapes; unknown where pieces would not stay together.

    A sharded dimension stays sharded as the outermost of the dimensions it is split into, or when it is the outermost of
    those it is merged with.
    """
    if not isinstance(placement, Shard):
        return placement
    if before is None or after is None or placement.order or placement.parts or parts < 1:
        return None
    if not -len(before) <= placement.dim < len(before):
        return None
    dim = placement.dim % len(before)
    for left, right in _groups(before, after):
        if dim not in left:
            continue
        if any(before[other] != 1 for other in left if other < dim):
            return None
        chosen = next((at for at in right if after[at] != 1), right[0] if right else None)
        return None if chosen is None else Shard(chosen)
    return None


def _groups(before: tuple[int, ...], after: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Runs of dimensions of both shapes that hold the same number of elements, smallest first."""
    found: list[tuple[list[int], list[int]]] = []
    left: list[int] = []
    right: list[int] = []
    one = two = 1
    i = j = 0
    while i < len(before) or j < len(after):
        if one <= two and i < len(before):
            left.append(i)
            one *= before[i]
            i += 1
        elif j < len(after):
            right.append(j)
            two *= after[j]
            j += 1
        else:
            left.append(i)
            one *= before[i]
            i += 1
        if one == two and left and right:
            found.append((left, right))
            left, right, one, two = [], [], 1, 1
    if found and (left or right):
        found[-1][0].extend(left)
        found[-1][1].extend(right)
    return found
