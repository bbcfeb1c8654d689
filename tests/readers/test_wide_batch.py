"""Expansions to a number that stands for the size of the batch, in traced graphs and in generated code."""

from __future__ import annotations

from dataclasses import replace

from tvlint.ir.operators import Collective, Communicate, Compute, Group, Literal
from tvlint.ops.families.shaping import AS_WIDE
from tvlint.readers.nnscaler.gencode.lower.batch_dependent_sizes import makers, widened, widened_in_place
from tvlint.readers.nnscaler.gencode.lower.shapes import Kind, results

KNOWN: dict[str, Kind] = {
    name: (shape, "float32")
    for name, shape in {"cls": (1, 1, 8), "tokens": (4, 1, 8), "x": (4, 5, 8), "half": (2, 1, 8), "rows": (2, 5, 8)}.items()
}
EXPAND = Compute("torch.Tensor.expand", ("cls",), ("tokens",), {"size": (4, -1, -1)}, label="expand")
CAT = Compute("nnscaler.runtime.function.cat", ("tokens", "x"), ("all",), {"dim": 1}, label="cat")


def test_an_expansion_takes_its_size_from_what_it_is_joined_with() -> None:
    wide, cat = widened(CAT, makers([(EXPAND, True), (CAT, True)]), KNOWN, ())
    assert (wide.op, wide.inputs) == (AS_WIDE, ("cls", "x"))
    assert cat.inputs == (wide.outputs[0], "x")
    for batch in (4, 12):
        known: dict[str, Kind] = {**KNOWN, "x": ((batch, 5, 8), "float32")}
        assert results(wide, known, ()) == {wide.outputs[0]: ((batch, 1, 8), "float32")}


def test_sizes_that_differ_stay_numbers() -> None:
    known: dict[str, Kind] = {**KNOWN, "x": ((3, 5, 8), "float32")}
    assert widened(CAT, makers([(EXPAND, True)]), known, ()) == (CAT,)


def test_what_two_expansions_are_joined_to_says_nothing() -> None:
    both = replace(CAT, inputs=("tokens", "tokens"))
    assert widened(both, makers([(EXPAND, True)]), KNOWN, ()) == (both,)


def test_nothing_is_taken_over_where_tensors_are_overwritten_or_gradients_stop() -> None:
    over = Compute("torch.Tensor.mul_", ("tokens", Literal(2)), ("twice",))
    assert makers([(EXPAND, True), (over, True)]) == {}
    assert widened(CAT, makers([(EXPAND, False)]), KNOWN, ()) == (CAT,)
    stopped = Compute("torch.detach", ("tokens",), ("still",))
    joined = replace(CAT, inputs=("still", "x"))
    known: dict[str, Kind] = {**KNOWN, "still": KNOWN["tokens"]}
    assert widened(joined, makers([(EXPAND, True), (stopped, True)]), known, ()) == (joined,)


def test_an_expansion_that_is_cut_among_ranks_takes_its_size_from_what_the_other_operand_was_before() -> None:
    def cut(name: str, to: str) -> Communicate:
        return Communicate(Collective.CHUNK, (name,), (to,), Group(ranks=(0, 1)), dim=0)

    cat = replace(CAT, inputs=("half", "rows"))
    body = [EXPAND, cut("tokens", "half"), cut("x", "rows"), cat]
    ((place, wide),) = widened_in_place(body, KNOWN, ())
    assert (place, wide.op, wide.inputs, wide.outputs) == (0, AS_WIDE, ("cls", "x"), ("tokens",))
    made_later = Compute("torch.relu", ("y",), ("x",))
    assert list(widened_in_place([EXPAND, made_later, *body[1:]], KNOWN, ())) == []


def test_an_expansion_takes_its_size_from_what_the_batch_of_the_other_operand_comes_from() -> None:
    def cut(name: str, to: str) -> Communicate:
        return Communicate(Collective.CHUNK, (name,), (to,), Group(ranks=(0, 1)), dim=0)

    known: dict[str, Kind] = {**KNOWN, "pixels": ((4, 8, 5), "float32"), "own": ((2, 8, 5), "float32")}
    turn = Compute("torch.transpose", ("own",), ("rows",), {"dim0": 1, "dim1": 2})
    cat = replace(CAT, inputs=("half", "rows"))
    body = [cut("pixels", "own"), turn, EXPAND, cut("tokens", "half"), cat]
    ((place, wide),) = widened_in_place(body, known, ())
    assert (place, wide.op, wide.inputs, wide.attributes["of"]) == (2, AS_WIDE, ("cls", "pixels"), (0,))
    other: dict[str, Kind] = {**known, "pixels": ((3, 8, 5), "float32")}
    assert list(widened_in_place(body, other, ())) == []
    flat = Compute("torch.Tensor.view", ("own",), ("rows",), {"size": (2, 5, 8)})
    ((_, wide),) = widened_in_place([body[0], flat, *body[2:]], known, ())
    assert wide.inputs == ("cls", "pixels")
