"""Numbers that one rank broadcasts, as the last pipeline stage does with the count of tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvlint.ir.operators import Literal
from tvlint.readers.capture.lifting.equations.table import EQUATIONS
from tvlint.readers.capture.lifting.lift import Call, Lifted, lift
from tvlint.readers.capture.lifting.program import Apply, Exchange, GivenValue, Program, Ref, Type
from tvlint.readers.capture.rewriting.equal_broadcasts import received_numbers
from tvlint.readers.capture.tapes.tape import Mark

MARK = Mark(micro_batch=0)


def program(rank: int, count: int | None, times: int = 1, reduce: str = "") -> Program:
    """Return a division of `x` by what rank 1 broadcasts: a count, or where there is none a value that is given.

    Where they `reduce`, ranks divide by what they add up instead.
    """
    own = Program(rank)
    own.types.update(x=Type((3,), "float32"), count=Type((), "float32"), mean=Type((3,), "float32"))
    own.given["x"] = GivenValue(None, None)
    if count is None:
        own.given["count"] = GivenValue(None, None)
    else:
        own.nodes.append(Apply("aten.full.default", {"size": (), "fill_value": count}, ("count",), MARK))
    last = "count"
    for time in range(times):
        own.types[f"sent{time}"] = own.types["count"]
        broadcast = Exchange("broadcast", (last,), (f"sent{time}",), (0, 1), MARK, root=1)
        own.nodes.append(replace(broadcast, kind="all-reduce", root=None, reduce=reduce) if reduce else broadcast)
        last = f"sent{time}"
    own.nodes.append(Apply("aten.div.Tensor", {"self": Ref("x"), "other": Ref(last)}, ("mean",), MARK))
    return own


def divisor(program: Program, received: dict[str, float | None]) -> object:
    last = lift(program, EQUATIONS, received).nodes[-1]
    assert isinstance(last, Call)
    return last.inputs[1]


def lifted(*programs: Program) -> list[Lifted]:
    return [lift(own, EQUATIONS) for own in programs]


def test_every_rank_divides_by_the_number_of_the_root() -> None:
    ranks = program(0, 0), program(1, 64)
    received = received_numbers(lifted(*ranks))
    assert [divisor(own, given) for own, given in zip(ranks, received, strict=True)] == [Literal(64), Literal(64)]


@pytest.mark.parametrize(
    ("first", "second"), [(program(0, 7), program(1, None)), (program(0, 7, 2), program(1, 64))], ids=["data", "one more"]
)
def test_what_the_root_is_given_or_sends_less_often_is_no_number(first: Program, second: Program) -> None:
    received = received_numbers(lifted(first, second))
    assert received == [{}, {}]
    assert isinstance(divisor(first, received[0]), Ref)


@pytest.mark.parametrize(("reduce", "number"), [("sum", 10), ("avg", 5), ("max", 6)])
def test_what_ranks_with_different_numbers_reduce_is_the_number_of_all(reduce: str, number: int) -> None:
    ranks = program(0, 4, reduce=reduce), program(1, 6, reduce=reduce)
    received = received_numbers(lifted(*ranks))
    assert [divisor(own, given) for own, given in zip(ranks, received, strict=True)] == [Literal(number), Literal(number)]


def test_what_a_rank_adds_to_the_data_of_another_is_no_number() -> None:
    ranks = program(0, 4, reduce="sum"), program(1, None, reduce="sum")
    received = received_numbers(lifted(*ranks))
    assert all(isinstance(divisor(own, given), Ref) for own, given in zip(ranks, received, strict=True))


def test_what_ranks_with_equal_numbers_reduce_is_known_to_each() -> None:
    ranks = program(0, 4, reduce="sum"), program(1, 4, reduce="sum")
    assert received_numbers(lifted(*ranks)) == [{}, {}]
    assert [divisor(own, {}) for own in ranks] == [Literal(8), Literal(8)]
