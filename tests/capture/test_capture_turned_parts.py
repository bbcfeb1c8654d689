"""Parts that are viewed alike are parts of the whole viewed so, where a view keeps the dimension: shown on numbers."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from tvlint.readers.capture.rewriting.regather import place_in_view

PARTS = 2


@pytest.mark.parametrize(
    ("part", "viewed", "dim", "place"),
    [
        ((8, 4, 4), (4, 2, 4, 4), 1, 2),
        ((4, 2, 3), (8, 3), 2, 1),
        ((3, 4), (3, 2, 2), 0, 0),
        ((2, 3, 4), (6, 4), 2, 1),
        ((1, 3), (1, 1, 3), 1, 2),
        ((6, 4), (2, 3, 4), 1, 2),
        ((4, 4), (2, 2, 4), 0, 0),
        ((2, 3, 8), (2, 3, 2, 4), 2, 2),
        ((4, 6), (24,), 1, None),
        ((2, 4, 3), (8, 3), 1, None),
        ((2, 6), (2, 2, 3), 1, 1),
        ((2, 6), (4, 3), 1, None),
    ],
)
def test_a_view_of_a_part_is_a_part_of_the_view(
    part: tuple[int, ...], viewed: tuple[int, ...], dim: int, place: int | None
) -> None:
    assert prod(part) == prod(viewed)
    assert place_in_view(part, viewed, dim) == place
    if place is None:
        return
    size, count = part[dim], viewed[place]
    whole = np.arange(float(PARTS * prod(part))).reshape(*part[:dim], PARTS * size, *part[dim + 1 :])
    wide = whole.reshape(*viewed[:place], PARTS * count, *viewed[place + 1 :])
    for number in range(PARTS):
        own = range(number * size, (number + 1) * size)
        there = range(number * count, (number + 1) * count)
        assert np.array_equal(whole.take(own, dim).reshape(viewed), wide.take(there, place))
