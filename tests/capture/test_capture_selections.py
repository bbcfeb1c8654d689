"""Lookups and losses of layers that hold a range of a vocabulary, as Megatron writes them, held to numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from capture.test_capture_equations import RANDOM, Bench

from tvlint.readers.capture.lifting.equations.selections import _are_equal
from tvlint.readers.capture.lifting.equations.table import EQUATIONS
from tvlint.readers.capture.lifting.lift import Call, GradientOf, Lifting, _lift, lift
from tvlint.readers.capture.lifting.program import Apply, Ref, Type
from tvlint.readers.capture.tapes.tape import Mark

START, STOP, ROWS = 4, 10, 5
TARGETS = np.array([4, 12, 9, 0, 7])
SCORES = RANDOM.normal(size=(ROWS, STOP - START))
HELD = RANDOM.normal(size=(STOP - START, 3))


class Masked:
    """Targets that are counted from the start of a range, and where they lie outside of it."""

    def __init__(self, bench: Bench, start: int = START, stop: int = STOP) -> None:
        self.bench = bench
        targets = bench.give("targets", TARGETS)
        below = bench.apply("lt", {"self": targets, "other": start}, TARGETS)
        above = bench.apply("ge", {"self": targets, "other": stop}, TARGETS)
        for name in (below, above):
            bench.program.types[name] = bench.program.types[name].__class__((ROWS,), "bool")
        self.mask = Ref(bench.apply("bitwise_or", {"self": Ref(below), "other": Ref(above)}, TARGETS))
        shifted = Ref(bench.apply("sub", {"self": targets, "other": start}, TARGETS))
        self.columns = Ref(bench.apply("index_put", {"self": shifted, "indices": (self.mask,), "values": 0}, TARGETS))
        self.rows = Ref(bench.apply("arange", {"start": 0, "end": ROWS}, np.arange(ROWS)))

    def zero_outside(self, value: str, result: Any) -> str:
        return self.bench.apply("index_put", {"self": Ref(value), "indices": (self.mask,), "values": 0.0}, result)


def picked(bench: Bench, own: Masked) -> str:
    chosen = bench.program.fresh(bench.program.types["v0"].__class__((ROWS,), "float64"))
    arguments = {"self": bench.give("scores", SCORES), "indices": (own.rows, own.columns)}
    bench.program.nodes.append(type(bench.program.nodes[0])("aten.index.Tensor", arguments, (chosen,), Mark(micro_batch=0)))
    return own.zero_outside(chosen, TARGETS)


def run(bench: Bench, wanted: str) -> Any:
    """Compute a value of a program some of whose nodes the equations fuse."""
    lifted = lift(bench.program, EQUATIONS)
    live = {lifted.gradients.get(wanted, (wanted, None))[0]}
    kept = []
    for node in reversed(lifted.nodes):
        if live.intersection(node.outputs if isinstance(node, Call | GradientOf) else ()):
            kept.append(node)
            inputs = node.inputs if isinstance(node, GradientOf) else [own.name for own in node.inputs if isinstance(own, Ref)]
            live |= {own for own in inputs if own}
            if isinstance(node, GradientOf):
                live |= {*node.forward.outputs, *(own.name for own in node.forward.inputs if isinstance(own, Ref))}
    return [node.op if isinstance(node, Call) else f"gradient of {node.forward.op}" for node in reversed(kept)]


def test_a_lookup_outside_of_the_range_is_the_lookup_in_the_range() -> None:
    bench = Bench()
    own = Masked(bench)
    found = bench.apply("embedding", {"weight": bench.give("weight", HELD), "indices": own.columns}, HELD[[0] * ROWS])
    result = own.zero_outside(found, HELD[[0] * ROWS])
    assert run(bench, result) == ["nnscaler.runtime.function.embedding"]


@pytest.mark.parametrize(("start", "stop"), [(START, STOP + 1), (START + 1, STOP)])
def test_a_table_that_is_not_as_long_as_the_range_is_another_lookup(start: int, stop: int) -> None:
    bench = Bench()
    own = Masked(bench, start, stop)
    found = bench.apply("embedding", {"weight": bench.give("weight", HELD), "indices": own.columns}, HELD[[0] * ROWS])
    result = own.zero_outside(found, HELD[[0] * ROWS])
    assert "nnscaler.runtime.function.embedding" not in run(bench, result)


@pytest.mark.parametrize(("compared", "counted", "is_lifted"), [(START, 0, True), (1, START - 1, True), (START, 1, False)])
def test_targets_may_be_counted_from_the_start_before_they_are_compared(compared: int, counted: int, is_lifted: bool) -> None:
    """`compared` is subtracted before targets are compared with the range, and `counted` behind it."""
    bench = Bench()
    first = Ref(bench.apply("sub", {"self": bench.give("targets", TARGETS), "other": compared}, TARGETS))
    bench.program.types[first.name] = bench.program.types["v0"]
    below, above = (
        bench.apply(op, {"self": first, "other": bound - compared}, TARGETS) for op, bound in (("lt", START), ("ge", STOP))
    )
    for name in (below, above):
        bench.program.types[name] = bench.program.types[name].__class__((ROWS,), "bool")
    mask = Ref(bench.apply("bitwise_or", {"self": Ref(below), "other": Ref(above)}, TARGETS))
    shifted = Ref(bench.apply("sub", {"self": first, "other": counted}, TARGETS))
    columns = Ref(bench.apply("index_put", {"self": shifted, "indices": (mask,), "values": 0}, TARGETS))
    found = bench.apply("embedding", {"weight": bench.give("weight", HELD), "indices": columns}, HELD[[0] * ROWS])
    rows = bench.apply("index_put", {"self": Ref(found), "indices": (mask,), "values": 0.0}, HELD[[0] * ROWS])
    ops = run(bench, rows)
    assert (ops == ["nnscaler.runtime.function.embedding"]) == is_lifted
    assert ("nnscaler.runtime.function.embedding" in ops) == is_lifted


@pytest.mark.parametrize(
    ("start", "stop", "last", "is_lifted"),
    [
        (START, STOP, STOP - START - 1, True),
        (START + 1, STOP, STOP - START - 1, False),
        (START, STOP + 1, STOP - START - 1, False),
        (START, STOP, STOP - START, False),
    ],
)
def test_rows_at_indices_that_are_kept_in_a_range_times_flags_of_those_in_it(
    start: int, stop: int, last: int, is_lifted: bool
) -> None:
    """`start` and `stop` are those of the flags, and `last` is the last row that is looked up."""
    bench = Bench()
    targets = bench.give("targets", TARGETS)
    flags = [bench.apply(op, {"self": targets, "other": bound}, TARGETS) for op, bound in (("ge", start), ("lt", stop))]
    flags.append(bench.apply("bitwise_and", {"self": Ref(flags[0]), "other": Ref(flags[1])}, TARGETS))
    for name in flags:
        bench.program.types[name] = bench.program.types[name].__class__((ROWS,), "bool")
    shifted, kept = Ref(bench.apply("sub", {"self": targets, "other": START}, TARGETS)), {"min": 0, "max": last}
    columns = Ref(bench.apply("clamp", {"self": shifted, **kept}, TARGETS))
    for ref in (shifted, columns):
        bench.program.types[ref.name] = bench.program.types["v0"]
    found = bench.apply("embedding", {"weight": bench.give("weight", HELD), "indices": columns}, HELD[[0] * ROWS])
    bench.program.operations[5] = found
    column = Ref(bench.apply("view", {"self": Ref(flags[2]), "size": (ROWS, 1)}, TARGETS[:, None]))
    bench.program.types[column.name] = bench.program.types[column.name].__class__((ROWS, 1), "bool")
    numbers = Ref(bench.apply("_to_copy", {"self": column, "dtype": "float64"}, TARGETS[:, None]))
    rows = bench.apply("mul", {"self": Ref(found), "other": numbers}, HELD[[0] * ROWS])
    assert (run(bench, rows) == ["nnscaler.runtime.function.embedding"]) == is_lifted
    gradient = bench.apply("mul", {"self": bench.give("gradient", HELD[[0] * ROWS]), "other": numbers}, HELD[[0] * ROWS])
    given = {"grad_output": Ref(gradient), "indices": columns, "num_weights": STOP - START, "padding_idx": -1}
    table = bench.apply("embedding_dense_backward", {**given, "scale_grad_by_freq": False}, HELD, Mark("backward", 0, of=5))
    ops = run(bench, table)
    assert ("gradient of nnscaler.runtime.function.embedding" in ops) == is_lifted


def test_scores_of_targets_in_the_range_are_picked() -> None:
    bench = Bench()
    result = picked(bench, Masked(bench))
    assert run(bench, result) == ["masked_gather", "torch.Tensor.view"]


def test_all_rows_are_what_they_are_taken_from_and_what_is_put_there() -> None:
    bench = Bench()
    own, other = bench.give("own", SCORES), bench.give("other", 2 * SCORES)
    rows = Ref(bench.apply("arange", {"start": 0, "end": ROWS}, np.arange(ROWS)))
    taken = bench.apply("index", {"self": own, "indices": (rows, None)}, SCORES)
    put = bench.apply("index_put", {"self": Ref(taken), "indices": (rows, None), "values": other}, SCORES)
    assert run(bench, taken) == ["torch.Tensor.view"]
    assert run(bench, put) == ["torch.Tensor.view"]
    np.testing.assert_array_equal(bench.run(taken), SCORES)
    np.testing.assert_array_equal(bench.run(put), 2 * SCORES)


@pytest.mark.parametrize("end", [ROWS - 1, ROWS + 1])
def test_other_rows_are_no_rows_of_it(end: int) -> None:
    bench = Bench()
    own, other = bench.give("own", SCORES), bench.give("other", 2 * SCORES)
    rows = Ref(bench.apply("arange", {"start": 0, "end": end}, np.arange(end)))
    put = bench.apply("index_put", {"self": own, "indices": (rows, None), "values": other}, SCORES)
    assert "torch.Tensor.view" not in run(bench, put)


def test_rows_that_are_added_to_are_not_replaced() -> None:
    bench = Bench()
    own, other = bench.give("own", SCORES), bench.give("other", 2 * SCORES)
    rows = Ref(bench.apply("arange", {"start": 0, "end": ROWS}, np.arange(ROWS)))
    put = bench.apply("index_put", {"self": own, "indices": (rows, None), "values": other, "accumulate": True}, SCORES)
    assert "torch.Tensor.view" not in run(bench, put)


def test_one_element_put_into_each_row_is_a_scatter() -> None:
    bench = Bench()
    own, values = bench.give("own", SCORES), bench.give("values", np.arange(ROWS) / 7)
    rows = Ref(bench.apply("arange", {"start": 0, "end": ROWS}, np.arange(ROWS)))
    columns = np.array([own % SCORES.shape[1] for own in range(ROWS)])
    expected = SCORES.copy()
    expected[np.arange(ROWS), columns] = np.arange(ROWS) / 7
    arguments = {"self": own, "indices": (rows, bench.give("columns", columns)), "values": values}
    result = bench.apply("index_put", arguments, expected)
    np.testing.assert_allclose(bench.run(result), expected)


def test_ones_at_the_indices_of_rows_are_one_hot() -> None:
    bench = Bench()
    zeros = Ref(bench.apply("zeros", {"size": (3, 5)}, np.zeros((3, 5))))
    bench.program.types[zeros.name] = Type((3, 5), "int64")
    index = np.array([[4], [0], [2]])
    result = bench.apply("scatter", {"self": zeros, "dim": -1, "index": index, "value": 1}, np.zeros((3, 5)))
    np.testing.assert_array_equal(bench.run(result), np.eye(5)[index[:, 0]])
    other = bench.apply("scatter", {"self": zeros, "dim": -1, "index": index, "value": 2}, np.zeros((3, 5)))
    ops = [node.op for node in lift(bench.program, EQUATIONS).nodes if isinstance(node, Call) and other in node.outputs]
    assert ops == ["torch.scatter"]


def test_a_number_is_put_at_places_of_each_row() -> None:
    bench = Bench()
    places = np.array([[0, 2], [3, 1], [1, 0]])
    made = bench.apply("scatter", {"self": SCORES[:3], "dim": 1, "index": places, "value": 2.0}, SCORES[:3])
    expected = SCORES[:3].copy()
    np.put_along_axis(expected, places, 2.0, 1)
    np.testing.assert_array_equal(bench.run(made), expected)


@pytest.mark.parametrize("same", [True, False])
def test_targets_that_are_masked_again_are_the_ones_that_were_picked(same: bool) -> None:
    bench = Bench()
    first, again = (bench.apply("add", {"self": bench.give(word, TARGETS), "other": 1}, TARGETS) for word in ("one", "other"))
    once = bench.apply("mul", {"self": Ref(first), "other": 2}, TARGETS)
    twice = bench.apply("mul", {"self": Ref(first), "other": 2 if same else 3}, TARGETS)
    lifting = Lifting(bench.program, EQUATIONS, {}, ())
    for node in bench.program.nodes:
        _lift(lifting, node)
    assert _are_equal(lifting, once, twice) is same
    assert not _are_equal(lifting, first, again)


@pytest.mark.parametrize("rows", [True, False])
def test_numbers_put_where_the_greatest_of_each_row_is_are_one_hot_times_them(rows: bool) -> None:
    """The gradient of `x.max(-1)`; of places in another order than the rows the scatter stays one."""
    bench = Bench()
    square = SCORES[:3, :3]
    values, places = square.max(1), square.argmax(1)
    made, chosen = (bench.program.fresh(Type((3,), dtype)) for dtype in ("float64", "int64"))
    given = bench.give("self", square)
    bench.program.nodes.append(Apply("aten.max.dim", {"self": given, "dim": 1}, (made, chosen), Mark(micro_batch=0)))
    shape = (3, 1) if rows else (1, 3)
    column = bench.apply("view", {"self": Ref(chosen), "size": shape}, places.reshape(shape))
    bench.program.types[column] = Type(shape, "int64")
    zeros, put = Ref(bench.apply("zeros", {"size": (3, 3)}, square)), values.reshape(shape)
    result = bench.apply("scatter", {"self": zeros, "dim": -1, "index": Ref(column), "src": put}, square)
    ops = [node.op for node in lift(bench.program, EQUATIONS).nodes if isinstance(node, Call)]
    assert ("torch.nn.functional.one_hot" in ops, "torch.scatter" in ops) == (rows, not rows)
    if rows:
        expected = np.zeros((3, 3))
        expected[np.arange(3), places] = values
        np.testing.assert_allclose(bench.run(result), expected)
