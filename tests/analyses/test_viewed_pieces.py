"""Pieces of a dimension, viewed as several dimensions: every reading has the numbers that the view has."""

from __future__ import annotations

from math import prod
from random import Random

import numpy as np
import pytest

from tvlint.analyses.relations.transfer.index_maps import Pieces, joined, length, split_dimension


def held(pieces: Pieces) -> list[int]:
    return [index for low, high in pieces for index in range(low, high)]


def pieces_in_rows(random: Random) -> tuple[Pieces, int]:
    """Return ranges of columns, perhaps out of order, of rows in a row; sometimes one of them is moved."""
    step, rows = random.choice((2, 4, 6, 8)), random.choice((1, 2, 3, 4))
    cuts = sorted(random.sample(range(step + 1), k=2 if step == 2 else random.choice((2, 4))))
    columns = [*zip(cuts[::2], cuts[1::2], strict=True)]
    random.shuffle(columns)
    first = random.randrange(2)
    found = [(row * step + low, row * step + high) for row in range(first, first + rows) for low, high in columns]
    if random.random() < 0.3:
        place = random.randrange(len(found))
        found[place] = (found[place][0] + 1, found[place][1] + 1)
    return joined(found), step * (first + rows + random.randrange(2))


@pytest.mark.parametrize("seed", range(300))
def test_every_reading_has_the_numbers_of_the_view(seed: int) -> None:
    random = Random(seed)
    pieces, size = pieces_in_rows(random)
    count = length(pieces)
    first = random.choice([each for each in range(1, count + 1) if count % each == 0])
    second = random.choice([each for each in range(1, count // first + 1) if count // first % each == 0])
    after = random.choice(((count,), (first, count // first), (first, second, count // first // second)))
    viewed = np.array(held(pieces)).reshape(after)
    for _, dims in split_dimension(pieces, size, after):
        sizes = [size for _, size in dims]
        if max(held(pieces)) < prod(sizes) == size:
            whole = np.arange(size).reshape(sizes)
            assert np.array_equal(whole[np.ix_(*(held(each) for each, _ in dims))], viewed), (pieces, size, after, dims)
        else:
            assert max(held(pieces)) >= size, (pieces, size, after, dims)


@pytest.mark.parametrize(
    ("pieces", "found"),
    [
        (((0, 2), (6, 10), (14, 16)), (((0, 2),), ((0, 2), (6, 8)))),
        (((2, 6), (10, 14)), (((0, 2),), ((2, 6),))),
        (((6, 8), (0, 2), (14, 16), (8, 10)), (((0, 2),), ((6, 8), (0, 2)))),
        (((0, 2), (6, 10), (13, 15)), None),
        (((0, 2), (5, 7), (6, 8), (14, 16)), None),
    ],
)
def test_rows_hold_the_same_columns(pieces: Pieces, found: tuple[Pieces, Pieces] | None) -> None:
    readings = [tuple(each for each, _ in dims) for _, dims in split_dimension(pieces, 16, (2, 4)) if dims[1][1] == 8]
    assert readings == ([found] if found is not None else [])
