"""Boxes of indices, against a count of every element."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tests.builders.operation_counts import operations
from tvlint.analyses.relations.transfer.boxes import are_disjoint, covers
from tvlint.ir.plan import Box

SIZE = 4


@st.composite
def boxes(draw: st.DrawFn) -> tuple[list[Box], tuple[int, ...]]:
    """Return a whole and boxes in it."""
    whole = (SIZE,) * draw(st.integers(0, 3))
    interval = st.tuples(st.integers(0, SIZE - 1), st.integers(1, SIZE)).map(lambda pair: (pair[0], max(pair[0] + 1, pair[1])))
    return draw(st.lists(st.tuples(*[interval] * len(whole)), max_size=6)), whole


def grid(rows: int, columns: int) -> list[Box]:
    return [((i, i + 1), (j, j + 1)) for i, j in product(range(rows), range(columns))]


def held(found: list[Box]) -> Counter[tuple[int, ...]]:
    return Counter(place for box in found for place in product(*(range(low, high) for low, high in box)))


@given(boxes())
def test_boxes_overlap_where_an_element_is_in_two(drawn: tuple[list[Box], tuple[int, ...]]) -> None:
    found, _ = drawn
    assert are_disjoint(found) == all(count == 1 for count in held(found).values())


@given(boxes())
def test_boxes_cover_a_whole_where_each_element_is_in_one(drawn: tuple[list[Box], tuple[int, ...]]) -> None:
    found, whole = drawn
    assert covers(found, whole) == (held(found).keys() == set(product(*(range(size) for size in whole))))


def test_a_grid_without_one_of_its_cells_does_not_cover() -> None:
    cells = grid(3, 5)
    assert covers(cells, (3, 5))
    assert are_disjoint(cells)
    assert not covers(cells[:-1], (3, 5))
    assert not are_disjoint([*cells, cells[4]])


def test_twice_the_cells_take_twice_the_operations() -> None:
    def counted(rows: int) -> int:
        cells = grid(rows, 2)
        return sum(operations(lambda: covers(cells, (rows, 2)) and are_disjoint(cells)).values())

    one, two, four = (counted(rows) for rows in (20, 40, 80))
    assert four - two <= 2.5 * (two - one)
