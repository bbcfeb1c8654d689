"""Ranks in few words, and never wrong ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvlint.ir.mesh import Axis, Mesh
from tvlint.reporters.text.ranks import describe, intervals

MESH = Mesh((Axis("pp", 2), Axis("dp", 1), Axis("cp", 3), Axis("tp", 4)))


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ((), ""),
        ((3,), "rank 3"),
        ((1, 0), "ranks 0,1"),
        ((*range(8), *range(16, 24)), "ranks 0-7,16-23"),
        (range(24), "every rank"),
        (range(1, 24, 4), "every tp=1 rank"),
        (range(12), "ranks 0-11"),
        ((13, 17, 21), "every pp=1, tp=1 rank"),
        ((13, 17, 22), "ranks 13,17,22"),
        ((23, 24), "ranks 23,24"),
        ((-1, 0), "ranks -1,0"),
    ],
)
def test_ranks_are_named_by_coordinates_where_a_list_would_be_needed(ranks: tuple[int, ...], said: str) -> None:
    assert describe(ranks, MESH) == said


@given(st.frozensets(st.integers(0, 30)))
def test_intervals_say_exactly_the_ranks(ranks: frozenset[int]) -> None:
    said = set()
    for part in filter(None, intervals(ranks).split(",")):
        first, _, last = part.partition("-")
        said |= set(range(int(first), int(last or first) + 1))
    assert said == ranks


@given(st.frozensets(st.integers(0, 23), min_size=1))
def test_coordinates_say_exactly_the_ranks(ranks: frozenset[int]) -> None:
    said = describe(ranks, MESH)
    if not said.startswith("every "):
        return
    wanted = [pair.split("=") for pair in said.removeprefix("every ").removesuffix("rank").replace(",", " ").split()]
    matching = {rank for rank in range(24) if all(MESH.coordinates(rank)[axis] == int(value) for axis, value in wanted)}
    assert matching == ranks
