"""Collectives of captured programs that are moved, flags that nothing reads, and buffers that a step changes."""

from __future__ import annotations

import pytest

from tvlint.readers.capture.lifting.lift import Call, Lifted, LiftedNode, inputs_of, outputs_of
from tvlint.readers.capture.lifting.program import Exchange, Program, Ref, Type
from tvlint.readers.capture.rank import _with_exchanges_of_no_data_behind
from tvlint.readers.capture.rewriting.scaled_sums import with_scaled_addends
from tvlint.readers.capture.tapes.tape import Communication, Mark, Named, Operation, Tape, Tensor, Window

MARK = Mark("backward", micro_batch=1)


def scaled(*, kind: str = "reduce", size: tuple[int, ...] = (), again: bool = False) -> Lifted:
    """Return a sum on one rank that is multiplied by a number, or by several, and perhaps read again."""
    program = Program(0)
    gradient, number = program.fresh(Type((4,), "float32")), program.fresh(Type(size, "float32"))
    total, result, other = (program.fresh(Type((4,), "float32")) for _ in range(3))
    nodes: list[LiftedNode] = [
        Exchange(kind, (gradient,), (total,), (0, 1), MARK, reduce="sum", root=1),
        Call("torch.mul", (Ref(total), Ref(number)), {}, (result,), MARK),
        *([Call("torch.neg", (Ref(total),), {}, (other,), MARK)] if again else []),
    ]
    return Lifted(program, nodes)


def test_a_sum_on_one_rank_times_a_number_is_the_sum_of_what_is_multiplied() -> None:
    lifted = scaled()
    reduced, product = lifted.nodes
    found = with_scaled_addends(lifted)
    first, second = found.nodes
    assert found.multiplied == (product.mark,)
    assert (inputs_of(first)[0], inputs_of(second)) == (inputs_of(reduced)[0], outputs_of(first))
    assert outputs_of(second) == outputs_of(product)


@pytest.mark.parametrize("arguments", [{"kind": "all-reduce"}, {"size": (4,)}, {"again": True}])
def test_other_sums_stay(arguments: dict[str, object]) -> None:
    lifted = scaled(**arguments)  # type: ignore[arg-type]
    assert with_scaled_addends(lifted).nodes == lifted.nodes


@pytest.mark.parametrize("read", [False, True])
def test_flags_that_nothing_reads_are_exchanged_behind_the_backward_pass(read: bool) -> None:
    program = Program(0)
    flag, found, result = (program.fresh(Type((), "int32")) for _ in range(3))
    nodes: list[LiftedNode] = [
        Call("torch.ones", (), {}, (flag,), MARK),
        Exchange("all-reduce", (flag,), (found,), (0, 1), MARK, reduce="sum"),
    ]
    use: list[LiftedNode] = [Call("torch.neg", (Ref(found),), {}, (result,), MARK)]
    moved = _with_exchanges_of_no_data_behind(Lifted(program, [*nodes, *(use if read else [])]))
    assert {node.mark.phase for node in moved.nodes} == ({"backward"} if read else {"reduce"})


@pytest.mark.parametrize(
    ("event", "is_changed"),
    [
        (Communication("all-reduce", (0,), (0,), (0, 1), 0, Mark(), "sum"), True),
        (Communication("broadcast", (0,), (0,), (0, 1), 0, Mark(), root=0), False),
        (Operation("aten.add_.Tensor", {}, (0,), (0,), None, Mark()), True),
        (Operation("aten.neg.default", {"self": Tensor(0)}, (1,), (), None, Mark()), False),
    ],
    ids=["summed over ranks", "sent to all", "added to", "read"],
)
def test_a_buffer_that_the_step_leaves_with_other_numbers_is_one_of_which_the_verdict_says_so(
    event: Communication | Operation, is_changed: bool
) -> None:
    windows = {number: Window(number, 0, (4,), (1,), "float32") for number in range(2)}
    tape = Tape(0, windows, (Named("counts", "buffer", 0), event))
    assert tape.changed_buffers == ({"counts"} if is_changed else set())
