"""Windows on storages: what is read of one from another is what NumPy reads."""

from __future__ import annotations

from itertools import permutations
from random import Random
from typing import Any

import numpy as np
import pytest

from tvlint.readers.capture.tapes.tape import Window
from tvlint.readers.capture.tapes.windows import Expand, Move, Narrow, Permute, View, elements, moves, overlap, overlaps_itself

Array = Any
SHAPES = ((96,), (8, 12), (4, 2, 12), (2, 48), (3, 32), (2, 3, 4, 4), (6, 16), (1, 96), (4, 1, 24))


def window(array: Array, base: Array) -> Window:
    offset = (array.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // 8
    return Window(0, offset, array.shape, tuple(stride // 8 for stride in array.strides), "int64")


def moved(array: Array, found: tuple[Move, ...]) -> Array:
    for move in found:
        if isinstance(move, Permute):
            array = array.transpose(move.dims)
        elif isinstance(move, View):
            array = array.reshape(move.shape)
        elif isinstance(move, Narrow):
            array = array.take(range(move.start, move.start + move.size), axis=move.dim)
        elif isinstance(move, Expand):
            array = np.broadcast_to(array, move.shape)
    return array


def wander(array: Array, steps: int, random: Random) -> Array:
    """Return a view of a view of the array."""
    for _ in range(steps):
        match random.randrange(5):
            case 0 if array.flags.c_contiguous and array.size == 96:
                array = array.reshape(random.choice(SHAPES))
            case 1 if 1 < array.ndim < 5:
                array = array.transpose(random.choice(list(permutations(range(array.ndim)))))
            case 2 if array.size:
                dim = random.randrange(array.ndim)
                start = random.randrange(array.shape[dim])
                places = [slice(None)] * array.ndim
                places[dim] = slice(start, random.randint(start + 1, array.shape[dim]), random.choice((1, 1, 2)))
                array = array[tuple(places)]
            case 3 if array.ndim < 6:
                array = np.expand_dims(array, random.randrange(array.ndim + 1))
            case 4 if 1 in array.shape:
                shape = list(array.shape)
                shape[shape.index(1)] = 3
                array = np.broadcast_to(array, shape)
    return array


@pytest.mark.parametrize("seed", range(8))
def test_a_view_of_a_view_is_read_from_what_holds_it(seed: int) -> None:
    random, found, tried = Random(seed), 0, 0
    while tried < 250:
        base = np.arange(96)
        source = wander(base, random.randrange(3), random)
        if any(stride == 0 and size > 1 for size, stride in zip(source.shape, source.strides, strict=True)):
            continue
        tried += 1
        target = wander(source, random.randrange(5), random)
        how = moves(window(source, base), window(target, base))
        if how is not None:
            found += 1
            np.testing.assert_array_equal(moved(source, how), target)
    assert found > 0.97 * tried


@pytest.mark.parametrize("seed", range(4))
def test_windows_overlap_where_they_share_an_element(seed: int) -> None:
    random, both = Random(seed), set()
    for _ in range(300):
        base = np.arange(96)
        one, other = (window(wander(base, random.randrange(1, 5), random), base) for _ in range(2))
        here, there = elements(one), elements(other)
        assert here is not None
        assert there is not None
        shared = bool(set(here.flatten().tolist()) & set(there.flatten().tolist()))
        assert overlap(one, other) is shared
        both.add(shared)
    assert both == {True, False}


def test_what_is_not_inside_is_not_read() -> None:
    half = Window(0, 0, (4, 4), (8, 1), "float32")
    assert moves(half, Window(0, 4, (4, 4), (8, 1), "float32")) is None
    assert moves(half, Window(0, 0, (4, 8), (8, 1), "float32")) is None
    assert moves(half, Window(0, 2, (4, 2), (8, 1), "float32")) == (Narrow(1, 2, 2),)


@pytest.mark.parametrize("seed", range(20))
def test_a_window_overlaps_itself_where_numpy_finds_a_place_twice(seed: int) -> None:
    random = Random(seed)
    for _ in range(50):
        rank = random.randrange(4)
        shape = tuple(random.randrange(4) for _ in range(rank))
        own = Window(0, 0, shape, tuple(random.randrange(9) for _ in range(rank)), "float32")
        places = elements(own)
        assert places is not None
        assert overlaps_itself(own) == (len(set(places.reshape(-1).tolist())) < places.size), own


def test_a_range_is_taken_before_every_second_place_of_it() -> None:
    base = np.arange(36).reshape(2, 18)
    found = moves(window(base, base), window(base[:, 12:18:2], base))
    assert found is not None
    assert found[0] == Narrow(1, 12, 6)
    assert (moved(base, found) == base[:, 12:18:2]).all()
