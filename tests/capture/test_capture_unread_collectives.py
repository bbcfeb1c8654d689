"""Collectives that no rank reads have no numbers; what any rank reads keeps those of all ranks."""

from __future__ import annotations

import pytest

from tvlint.readers.capture.lifting.equations.table import EQUATIONS
from tvlint.readers.capture.lifting.lift import Lifted, inputs_of, lift, makers_of
from tvlint.readers.capture.lifting.program import Apply, Exchange, GivenValue, Program, Ref, RootValue, Type
from tvlint.readers.capture.rewriting.unread_collectives import with_nothing_in_unread_collectives
from tvlint.readers.capture.tapes.tape import Mark

MARK = Mark(micro_batch=0)


def program(rank: int, dtype: str, reads: bool, times: int = 1) -> Lifted:
    """Return a rank that adds up its `x` with that of others, and reads the sum or its `x` alone."""
    found = Program(rank)
    found.types.update(x=Type((3,), dtype), loss=Type((), dtype))
    found.given["x"] = GivenValue(None, None)
    for time in range(times):
        found.types[f"sum{time}"] = found.types["x"]
        found.nodes.append(Exchange("reduce", ("x",), (f"sum{time}",), (0, 1), MARK, "sum", root=0))
    found.nodes.append(Apply("aten.sum.default", {"self": Ref("sum0" if reads else "x")}, ("loss",), MARK))
    found.roots.append(RootValue("loss", "", MARK))
    return lift(found, EQUATIONS)


def sends_numbers(lifted: Lifted) -> list[bool]:
    """Return of each collective whether it sends what the rank is given."""
    makers = makers_of(lifted)
    sent = [inputs_of(node)[0] for node in lifted.nodes if isinstance(node, Exchange)]
    assert all(inputs_of(makers[name]) == () for name in sent if name != "x")
    return [name == "x" for name in sent]


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize(
    ("reads", "sends"), [((True, False), True), ((False, True), True), ((False, False), False)], ids=["first", "last", "none"]
)
def test_what_one_rank_reads_keeps_the_numbers_of_every_rank(reads: tuple[bool, bool], sends: bool, dtype: str) -> None:
    ranks = with_nothing_in_unread_collectives([program(rank, dtype, reads[rank]) for rank in (0, 1)])
    assert [sends_numbers(rank) for rank in ranks] == [[sends], [sends]]


def test_collectives_that_do_not_meet_keep_their_numbers() -> None:
    ranks = with_nothing_in_unread_collectives([program(0, "float32", False), program(1, "float32", False, 2)])
    assert [sends_numbers(rank) for rank in ranks] == [[True], [True, True]]
    assert sends_numbers(with_nothing_in_unread_collectives([program(0, "float32", False)])[0]) == [True]
