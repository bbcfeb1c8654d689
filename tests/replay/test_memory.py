"""What operators gave on numbers is kept for the same numbers alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tvlint.replay.memory
from tvlint.ir.operators import Compute
from tvlint.ops.field import Array
from tvlint.replay.memory import Memory
from tvlint.replay.stand_ins import StandIns

SUM = Compute("torch.sum", ("x",), ("y",), {"dim": 1})
X = np.arange(6.0).reshape(2, 3)


class Counted:
    def __init__(self, stand_ins: StandIns | None = None) -> None:
        self.times, self.stand_ins = 0, stand_ins

    def __call__(self) -> tuple[Array, ...]:
        self.times += 1
        if self.stand_ins is not None:
            self.stand_ins.used = True
        return (X + self.times,)


@pytest.mark.parametrize(
    ("compute", "asked", "given", "times"),
    [
        (SUM, "forward", X, 1),
        (replace(SUM, inputs=("z",), outputs=("w",)), "forward", X, 1),
        (replace(SUM, attributes={"dim": 0}), "forward", X, 2),
        (replace(SUM, op="torch.mean"), "forward", X, 2),
        (SUM, "gradients", X, 2),
        (SUM, "forward", X.reshape(3, 2), 2),
        (SUM, "forward", X + 1e-12, 2),
        (SUM, "forward", X.astype(np.int64), 2),
    ],
)
def test_what_was_computed_of_the_same_numbers_is_not_computed_again(
    compute: Compute, asked: str, given: Array, times: int
) -> None:
    memory, make = Memory(), Counted()
    first = memory.recall(SUM, "forward", [X], make, None)
    again = memory.recall(compute, asked, [given], make, None)
    assert make.times == times
    assert (again is first) == (times == 1)


@pytest.mark.parametrize("used", [False, True])
def test_what_a_stand_in_makes_is_made_again(used: bool) -> None:
    memory, stand_ins = Memory(), StandIns()
    stand_ins.used = used
    memory.recall(SUM, "forward", [X], Counted(), stand_ins)
    assert stand_ins.used is used
    drawn = Counted(stand_ins)
    for _ in range(2):
        memory.recall(SUM, "drawn", [X], drawn, stand_ins)
    assert stand_ins.used
    assert drawn.times == 2


def test_no_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvlint.replay.memory, "_MOST_NUMBERS", X.size)
    memory, first, second = Memory(), Counted(), Counted()
    for _ in range(2):
        memory.recall(SUM, "one", [X], first, None)
        memory.recall(SUM, "two", [X], second, None)
    assert (first.times, second.times) == (1, 2)
