"""Sets of ranks in words."""

from __future__ import annotations

import pytest

from tvlint.ir.mesh import Axis, Mesh
from tvlint.ir.ranks import describe

MESH = Mesh((Axis("dp", 4), Axis("tp", 64)))


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([3], "rank 3"),
        ([0, 1, 4], "ranks 0-1,4"),
        (range(256), "every rank"),
        (range(1, 256, 64), "every tp=1 rank"),
        (range(0, 100, 3), "ranks 0,3,6,9,12,15,18,21,24,27,30,33,36,39,42,45 and 18 more"),
    ],
)
def test_a_phrase_for_ranks_is_short(ranks: list[int], said: str) -> None:
    assert describe(ranks, MESH) == said
