"""Dimensions of which a rank holds one index: the outermost factors of a whole dimension that parts of it are cut along."""

from __future__ import annotations

import pytest

from tvlint.readers.capture.rewriting.unit_dimensions import units_of


@pytest.mark.parametrize(
    ("factors", "parts", "units"),
    [
        ([(7, 2), (8, 4)], 2, ((7, 1),)),
        ([(7, 2), (8, 4)], 4, ((7, 2),)),
        ([(7, 2), (8, 2)], 4, ((7, 2), (8, 1))),
        ([(7, 2), (8, 4)], 6, ()),
        ([(7, 8)], 2, ()),
        ([(7, 2), (8, 4)], 1, ()),
        ([(7, 2)], 4, ()),
    ],
)
def test_units_are_followed_by_the_parts_of_what_is_behind_them(
    factors: list[tuple[int, int]], parts: int, units: tuple[tuple[int, int], ...]
) -> None:
    assert units_of(factors, parts) == units
