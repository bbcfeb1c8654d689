"""Rows of tokens that experts choose, on as many ranks as there may be."""

from __future__ import annotations

import pytest

from tvlint.ir.operators import Literal
from tvlint.readers.capture.lifting.calls import PUT, SELECT
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
