"""Padding, held to numbers: ranges of padded tensors, gradients of ranges, and losses whose targets are padded."""

from __future__ import annotations

import numpy as np
import pytest
from capture.test_capture_equations import A, B, Bench, X

from tvlint.ir.operators import Literal
from tvlint.readers.capture.emit import Emitter
from tvlint.readers.capture.lifting.equations.table import EQUATIONS
from tvlint.readers.capture.lifting.factors import Factors
from tvlint.readers.capture.lifting.lift import Call, Lifted, LiftedNode, lift
from tvlint.readers.capture.lifting.program import Apply, Argument, GivenValue, Program, Ref, Type
from tvlint.readers.capture.tapes.tape import Mark

PADDED = np.pad(X, ((0, 0), (2, 1)), constant_values=9.0)


@pytest.mark.parametrize(("start", "length"), [(0, 7), (1, 6), (2, 4), (3, 3), (0, 3), (3, 2), (4, 3)])
def test_a_range_of_a_padded_tensor_is_the_padded_range(start: int, length: int) -> None:
    bench, wanted = Bench(), PADDED[:, start : start + length]
    padded = bench.apply("constant_pad_nd", {"self": X, "pad": (2, 1), "value": 9.0}, PADDED)
    part = bench.apply("narrow", {"self": Ref(padded), "dim": 1, "start": start, "length": length}, wanted)
    made = bench.apply("neg", {"self": Ref(part)}, wanted)
    np.testing.assert_array_equal(bench.run(made), -wanted)


def test_a_range_of_padding_alone_is_cut_from_the_padded_tensor() -> None:
    bench, wanted = Bench(), PADDED[:, :2]
    padded = bench.apply("constant_pad_nd", {"self": X, "pad": (2, 1), "value": 9.0}, PADDED)
    part = bench.apply("narrow", {"self": Ref(padded), "dim": 1, "start": 0, "length": 2}, wanted)
    np.testing.assert_array_equal(bench.run(bench.apply("neg", {"self": Ref(part)}, wanted)), -wanted)


def test_padding_that_cuts_is_left_as_it_is() -> None:
    bench = Bench()
    bench.apply("constant_pad_nd", {"self": X, "pad": (-1, 0)}, X[:, 1:])
    assert [call.op for call in lift(bench.program, EQUATIONS).unlifted] == ["aten.constant_pad_nd.default"]


def shifted(bench: Bench, number: int, dtype: str = "int64") -> Ref:
    """Return the targets 2, 1, then 0, each shifted by one and padded with `number`, flat, of two rows of three."""
    ids = np.array([[0, 2, 1], [1, 0, 3]])
    given = bench.program.fresh(Type(ids.shape, dtype))
    bench.program.given[given] = GivenValue(None, None)
    bench.values[given] = ids.astype(float)
    steps: list[tuple[str, dict[str, Argument], tuple[int, ...]]] = [
        ("aten.constant_pad_nd.default", {"pad": (0, 1), "value": number}, (2, 4)),
        ("narrow", {"dim": 1, "start": 1, "length": 3}, (2, 3)),
        ("view", {"size": (6,)}, (6,)),
    ]
    name = given
    for op, arguments, shape in steps:
        made = bench.program.fresh(Type(shape, dtype))
        bench.program.nodes.append(Apply(op, {"self": Ref(name), **arguments}, (made,), Mark(micro_batch=0)))
        name = made
    return Ref(name)


def loss(bench: Bench, scores: Argument, targets: Ref, reduction: int, *, backward: bool) -> str:
    """Return the loss of six rows, or the gradient of it for the scores."""
    given: dict[str, Argument] = {"self": scores, "target": targets, "weight": None, "reduction": reduction}
    given["ignore_index"] = -100
    made, total = (bench.program.fresh(Type((), "float64")) for _ in range(2))
    bench.program.nodes.append(Apply("aten.nll_loss_forward.default", given, (made, total), Mark(micro_batch=0)))
    if not backward:
        return made
    given |= {"grad_output": bench.give("gradient", np.array(2.0)), "total_weight": Ref(total)}
    gradient = bench.program.fresh(Type((6, 5), "float64"))
    bench.program.nodes.append(Apply("aten.nll_loss_backward.default", given, (gradient,), Mark("backward", 0)))
    return gradient


ROWS = np.concatenate([A @ B, B[:3] + 1])
"""Scores of five classes for two rows of three."""


@pytest.mark.parametrize(("reduction", "count"), [(1, 4), (2, 1)])
def test_rows_whose_targets_are_padding_count_nothing(reduction: int, count: int) -> None:
    wanted = -(ROWS[0, 2] + ROWS[1, 1] + ROWS[3, 0] + ROWS[4, 3]) / count
    bench = Bench()
    made = loss(bench, bench.give("scores", ROWS), shifted(bench, -100), reduction, backward=False)
    np.testing.assert_allclose(bench.run(made), wanted)
    bench, wanted_gradient = Bench(), np.zeros(ROWS.shape)
    wanted_gradient[[0, 1, 3, 4], [2, 1, 0, 3]] = -2.0 / count
    made = loss(bench, bench.give("scores", ROWS), shifted(bench, -100), reduction, backward=True)
    np.testing.assert_allclose(bench.run(made), wanted_gradient)


@pytest.mark.parametrize(("number", "reduction"), [(0, 1), (-100, 0)])
def test_padding_that_counts_stays_among_the_targets(number: int, reduction: int) -> None:
    bench = Bench()
    loss(bench, bench.give("scores", ROWS), shifted(bench, number), reduction, backward=False)
    calls = [node for node in lift(bench.program, EQUATIONS).nodes if isinstance(node, Call)]
    assert calls[-1].op == "torch.nn.functional.nll_loss"
    assert isinstance(calls[-1].inputs[0], Ref)
    assert bench.program.shape(calls[-1].inputs[0].name) == (6, 5)


@pytest.mark.parametrize(
    ("pad", "given", "made", "written"),
    [((0, 2), (2, 3, 4), (2, 3, 6), (0, 2, 0, 0, 0, 0)), ((0, 0, 1, 0), (6, 4), (7, 4), (0, 0, 1, 0))],
    ids=["within rows", "of rows"],
)
def test_dimensions_that_are_not_padded_stay_apart_where_the_program_joined_them(
    pad: tuple[int, ...], given: tuple[int, ...], made: tuple[int, ...], written: tuple[int, ...]
) -> None:
    program, mark = Program(0), Mark(micro_batch=0)
    result = (made[0] * made[1], made[2]) if len(made) == 3 else made
    program.types.update(x=Type((2, 3, 4), "float32"), rows=Type((6, 4), "float32"), made=Type(result, "float32"))
    nodes: list[LiftedNode] = [
        Call("torch.Tensor.view", (Ref("x"), Literal((6, 4))), {}, ("rows",), mark),
        Call("torch.nn.functional.pad", (Ref("rows"),), {"pad": pad, "value": 0}, ("made",), mark),
    ]
    lifted = Lifted(program, nodes)
    emitter = Emitter(lifted, Factors(lifted), {"x": "x"}, {"x": (2, 3, 4)}, frozenset({"x"}))
    emitter.emit(nodes)
    padding = emitter.calls["made", 0]
    assert (padding.operands, padding.results, padding.compute.attributes["pad"]) == ((given,), (made,), written)
