"""Rows of tokens that experts choose, on as many ranks as there may be."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tvlint.ir.operators import Literal
from tvlint.readers.capture.lifting.calls import NARROW, PUT, SELECT
from tvlint.readers.capture.lifting.lift import Call, Lifted, LiftedNode
from tvlint.readers.capture.lifting.program import Exchange, Program, Ref, Type
from tvlint.readers.capture.rewriting.chosen_rows import with_all_rows
from tvlint.readers.capture.tapes.tape import Mark

MARK = Mark(micro_batch=0)


def chosen(ranks: int) -> Lifted:
    """Return a program that gathers two tokens of each rank, takes the chosen ones, and adds them up where they come from."""
    program, count, group = Program(0), 2 * ranks, tuple(range(ranks))

    def made(dtype: str, *shape: int) -> str:
        return program.fresh(Type(shape, dtype))

    tokens, rows, every = made("float32", 1, 2, 4), made("float32", 2, 4), made("float32", count, 4)
    flags, numbers, wide, places = (
        made("bool", 1, count), made("int64", count), made("int64", 1, count), made("int64", 3),
    )  # fmt: skip
    taken, zeros, total, part = made("float32", 3, 4), *(made("float32", count, 4) for _ in range(2)), made("float32", 2, 4)
    nodes: list[LiftedNode] = [
        Call("torch.Tensor.view", (Ref(tokens), Literal((2, 4))), {}, (rows,), MARK),
        Exchange("all-gather", (rows,), (every,), group, MARK, dim=0),
        Call("torch.arange", (Literal(count),), {}, (numbers,), MARK),
        Call("torch.Tensor.view", (Ref(numbers), Literal((1, count))), {}, (wide,), MARK),
        Call(SELECT, (Ref(wide), Ref(flags)), {}, (places,), MARK),
        Call("aten.index_select.default", (Ref(every), Ref(places)), {"dim": 0}, (taken,), MARK),
        Call("torch.zeros", (Literal((count, 4)),), {}, (zeros,), MARK),
        Call("aten.index_add.default", (Ref(zeros), Ref(places), Ref(taken)), {"dim": 0}, (total,), MARK),
        Exchange("reduce-scatter", (total,), (part,), group, MARK, reduce="sum", dim=0),
    ]
    return Lifted(program, nodes)


@pytest.mark.parametrize("ranks", [2, 3, 49, 75])
@pytest.mark.parametrize("is_sequence", [False, True], ids=["samples", "sequence"])
def test_each_rank_gets_its_tokens_back(ranks: int, is_sequence: bool) -> None:
    found = with_all_rows(chosen(ranks), [(ranks, 2)] if is_sequence else [])
    assert not any(isinstance(node, Call) and node.op in (SELECT, PUT) for node in found.nodes)
    gather, scatter = (node for node in found.nodes if isinstance(node, Exchange))
    whole = (ranks, 2, 4) if is_sequence else (1, 2 * ranks, 4)
    assert [found.program.shape(each.outputs[0]) for each in (gather, scatter)] == [whole, (1, 2, 4)]


def of_experts(exchanged: Sequence[tuple[int, int]], rank: int = 0) -> Lifted:
    """Return a program that takes the tokens which each of two experts has chosen, gathers those of two ranks, whose lengths
    differ, adds up what both ranks give for them, in chunks of the rows as listed, and brings them back.
    """
    program, group = Program(rank), (0, 1)

    def made(dtype: str, *shape: int) -> str:
        return program.fresh(Type(shape, dtype))

    tokens, rows, flags, numbers, wide, places = (
        made("float32", 2, 1, 4), made("float32", 2, 4), made("bool", 2, 2), made("int64", 2), made("int64", 2, 2),
        made("int64", 3),
    )  # fmt: skip
    taken, every, zeros, total = (made("float32", count, 4) for count in (3, 5, 2, 2))
    chunks = [made("float32", length, 4) for _, length in exchanged]
    joined, back = made("float32", 5, 4), made("float32", 3, 4)
    nodes: list[LiftedNode] = [
        Call("torch.Tensor.view", (Ref(tokens), Literal((2, 4))), {}, (rows,), MARK),
        Call("torch.arange", (Literal(2),), {}, (numbers,), MARK),
        Call("torch.Tensor.expand", (Ref(numbers), Literal((2, 2))), {}, (wide,), MARK),
        Call(SELECT, (Ref(wide), Ref(flags)), {}, (places,), MARK),
        Call("aten.index_select.default", (Ref(rows), Ref(places)), {"dim": 0}, (taken,), MARK),
        Exchange("all-gather", (taken,), (every,), group, MARK, dim=0, splits=(3, 2)),
        *(
            Call(NARROW, (Ref(every), Literal(0), Literal(start), Literal(length)), {}, (chunk,), MARK)
            for chunk, (start, length) in zip(chunks, exchanged, strict=True)
        ),
        Call("torch.cat", tuple(map(Ref, chunks)), {"dim": 0}, (joined,), MARK),
        Exchange("reduce-scatter", (joined,), (back,), group, MARK, reduce="sum", dim=0, splits=(3, 2)),
        Call("torch.zeros", (Literal((2, 4)),), {}, (zeros,), MARK),
        Call("aten.index_add.default", (Ref(zeros), Ref(places), Ref(back)), {"dim": 0}, (total,), MARK),
    ]
    return Lifted(program, nodes)


IN_ORDER = [(0, 1), (1, 2), (3, 1), (4, 1)]


def test_ranks_that_share_experts_gather_tokens_and_add_up_what_they_make_of_them() -> None:
    found = with_all_rows(of_experts(IN_ORDER), [(4, 1)])
    assert not any(isinstance(node, Call) and node.op in (SELECT, PUT, NARROW) for node in found.nodes)
    gather, scatter = (node for node in found.nodes if isinstance(node, Exchange))
    assert [found.program.shape(each.outputs[0]) for each in (gather, scatter)] == [(2, 4, 1, 4), (2, 2, 1, 4)]
    assert (gather.dim, scatter.dim, gather.splits, scatter.splits) == (1, 1, (), ())


@pytest.mark.parametrize("order", [(1, 0, 2, 3), (2, 3, 0, 1), (0, 2, 1, 3)])
def test_rows_in_another_order_are_not_taken_for_those_of_the_ranks(order: tuple[int, ...]) -> None:
    given = of_experts([IN_ORDER[place] for place in order])
    assert with_all_rows(given, [(4, 1)]) is given
