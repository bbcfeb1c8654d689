"""Plan text says what docs/plan-text.md promises, and wrong text is reported where it is wrong."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tvlint.ir.operators import (
    Backward,
    Collective,
    Communicate,
    Compute,
    Group,
    Literal,
    Peer,
    Receive,
    ReduceGradients,
    Send,
)
from tvlint.ir.placement import Invariant, Partial, Replicate, Shard
from tvlint.ir.plan import Phase, Plan, Program, Replication, Role, Segment, Step, Tensor
from tvlint.readers.document import ReadError
from tvlint.readers.plan_text import reader as plan_text
from tvlint.reporters.plan.text import write

DOCUMENT = Path(__file__).parents[2] / "docs" / "plan-text.md"
EXAMPLES = re.findall(r"```plan\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)


def plan_of(text: str) -> Plan:
    document = plan_text.read("example.plan", text)
    assert document.plan is not None
    return document.plan


def operators(text: str) -> list[object]:
    plan = plan_of(text)
    return [operator for segment in plan.segments.values() for operator in segment.operators]


def operator(line: str, head: str = "mesh dp=2 tp=2 pp=2") -> object:
    return operators(f"{head}\nprogram\n  {line}\n")[0]


def tensor(line: str) -> Tensor:
    (found,) = plan_of(f"mesh dp=2 tp=2\n{line}\n").tensors.values()
    return found


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_examples_of_the_documentation_are_read(text: str) -> None:
    assert plan_text.recognise(text)
    assert plan_of(text).programs


@pytest.mark.parametrize(
    "text",
    ["", "# no\n", "{}", "python train.py --tp 2\n", "model:\n  layers: 2\n", "plan: 3\n", "mesh of\n", "#!/bin/sh\nset -e\n"],
)
def test_other_text_is_not_recognised(text: str) -> None:
    assert not plan_text.recognise(text)


@pytest.mark.parametrize(
    "text", ['# c\n\nplan "x"\n', "mesh dp=2\n", "weight w f32[2]\n", "program\n", "\ufeffplan\r\nprogram\r\n"]
)
def test_plan_text_is_recognised_by_its_first_statement(text: str) -> None:
    assert plan_text.recognise(text)


def test_a_declared_shape_is_the_whole_one_and_the_local_one_follows() -> None:
    found = tensor("weight w f32[16,8] tp:S(0) dp:P")
    assert (found.shape, found.whole, found.dtype) == ((8, 8), (16, 8), "float32")
    assert found.placements == {"tp": Shard(0), "dp": Partial("sum")}
    assert found.requires_grad


def test_axes_that_are_left_out_are_replicated_for_inputs_and_unclaimed_for_activations() -> None:
    assert tensor("input x bf16[4]").placements == {}
    assert tensor("tensor x bf16[4]").placements is None
    assert tensor("tensor x bf16[4] replicated").placements == {}
    assert tensor("weight x bf16[4] local").placements is None


def test_every_placement_is_said() -> None:
    found = tensor("tensor x f32[8,12] dp:S(0, order=[[0,3],[1,2]]) tp:S(1, parts=[4,4,4])")
    assert found.placements == {"dp": Shard(0, ((0, 3), (1, 2))), "tp": Shard(1, (), (4, 4, 4))}
    assert found.shape == (4, 6)
    assert tensor("tensor x f32[8] dp:I tp:R").placements == {"dp": Invariant(), "tp": Replicate()}
    assert tensor("tensor x f32[8] dp:P(max)").placements == {"dp": Partial("max")}


def test_explicit_claims_are_said() -> None:
    found = tensor('weight t5 f32[4,4] region [0:4,4:8] of "layers.0.w"[8,8] part 0/2 gradient g5 frozen storage flat')
    assert found == Tensor(
        "t5", (4, 4), "float32", Role.WEIGHT, "layers.0.w", (8, 8), ((0, 4), (4, 8)), (0, 2), None, "", "g5", False, "flat"
    )


def test_operands_attributes_and_in_place_are_read() -> None:
    found = operator('y = `torch.add`(x!, 2, -1e-05, None, [1, [2]], "s", alpha=2, mode="a b") as "a, a -> a" on s label L')
    assert isinstance(found, Compute)
    assert (found.op, found.outputs, found.in_place) == ("torch.add", ("y",), (0,))
    assert found.inputs == ("x", Literal(2), Literal(-1e-05), Literal(None), Literal((1, (2,))), Literal("s"))
    assert found.attributes == {"alpha": 2, "mode": "a b"}
    assert (found.annotation, found.stream, found.label) == ("a, a -> a", "s", "L")


def test_a_collective_is_read() -> None:
    found = operator("a, b = all-to-all(x, z, dim=0, concat-dim=1, splits=[1,2], receive-splits=[2,1]) over dp,tp async h on s")
    assert isinstance(found, Communicate)
    assert (found.kind, found.inputs, found.outputs) == (Collective.ALL_TO_ALL, ("x", "z"), ("a", "b"))
    assert found.group == Group(("dp", "tp"))
    assert (found.dim, found.concat_dim, found.splits, found.receive_splits) == (0, 1, (1, 2), (2, 1))
    assert (found.reduce, found.handle, found.stream) == ("", "h", "s")


@pytest.mark.parametrize(
    ("written", "group"),
    [
        ("tp", Group(("tp",))),
        ("world", Group(("dp", "tp", "pp"))),
        ("self", Group()),
        ("ranks 3,0-2", Group(ranks=(3, 0, 1, 2))),
        ("ranks 0,1 named c", Group(ranks=(0, 1), name="c")),
        ("tied", Group(ranks=(0, 7), name="tied")),
    ],
)
def test_groups_are_read(written: str, group: Group) -> None:
    found = operator(f"y = all-reduce max(x) over {written}", "mesh dp=2 tp=2 pp=2\ncommunicator tied over ranks 0,7")
    assert isinstance(found, Communicate)
    assert found.group == group
    assert found.reduce == "max"


def test_reductions_are_sums_unless_said() -> None:
    kinds = {"all-reduce": "sum", "reduce-scatter": "sum", "reduce": "sum", "all-gather": "", "broadcast": ""}
    for kind, reduce in kinds.items():
        found = operator(f"y = {kind}(x, dim=0) over tp")
        assert isinstance(found, Communicate)
        assert found.reduce == reduce
    averaged = operator("y = all-reduce mean(x) over tp")
    assert isinstance(averaged, Communicate)
    assert averaged.reduce == "avg"


def test_a_word_that_is_also_a_collective_is_a_computation_without_over() -> None:
    assert isinstance(operator("y = gather(x, i, dim=1)"), Compute)
    assert isinstance(operator("y = gather(x, dim=1, root=0) over tp"), Communicate)


def test_point_to_point_is_read() -> None:
    sent = operator("send x to pp+1 ring tag 3 via c async h batch b")
    assert sent == Send("x", Peer(None, "pp", 1, True), 3, "c", "h", "", getattr(sent, "source", None), "", "b")
    received = operator("recv x: f32[4] from 2")
    assert isinstance(received, Receive)
    assert received.peer == Peer(2)


def test_an_operator_stands_at_its_line() -> None:
    found = operators("mesh tp=2\nprogram\n   y = gelu(x)   # why\n")[0]
    assert isinstance(found, Compute)
    assert found.source is not None
    place = found.source
    assert (place.path, place.line, place.column, place.end_column) == ("example.plan", 3, 4, 15)
    assert place.text == "   y = gelu(x)   # why"


def test_a_place_in_the_model_takes_over() -> None:
    found = operator(r'y = gelu(x) at "model.py":3:5 to 4:1 pointer "cell 1" "a = \"b\""')
    assert isinstance(found, Compute)
    assert found.source is not None
    place = found.source
    assert (place.path, place.line, place.column, place.end_line, place.end_column) == ("model.py", 3, 5, 4, 1)
    assert (place.pointer, place.text) == ("cell 1", 'a = "b"')


MLP = """mesh tp=2
weight w f32[8,8] tp:S(1)
input x f32[4,8] tp:S(1)
program
  y = linear(x, w)
  dx, grad(w) = backward y (dy)
  reduce-gradients w over tp by avg divide 2 scatter
  update w
"""


def test_backward_finds_its_forward_operator_and_declares_gradients() -> None:
    plan = plan_of(MLP)
    found = [operator for segment in plan.segments.values() for operator in segment.operators]
    assert isinstance(found[1], Backward)
    assert found[1].forward is found[0]
    assert plan.tensors["w"].gradient == "grad(w)"
    assert plan.tensors["grad(w)"].gradient_of == "w"
    assert plan.tensors["grad(w)"].role is Role.GRADIENT
    assert plan.tensors["dx"].shape == (4, 4)
    assert isinstance(found[2], ReduceGradients)
    assert (found[2].reduce, found[2].divisor, found[2].scatter) == ("avg", 2, True)


def test_operators_in_a_program_form_segments_by_phase() -> None:
    plan = plan_of(MLP)
    assert [segment.phase for segment in plan.segments.values()] == [
        Phase.FORWARD, Phase.BACKWARD, Phase.REDUCE, Phase.OPTIMIZER
    ]  # fmt: skip
    assert plan.segments["forward"].inputs == ("x",)
    assert plan.segments["forward"].outputs == ("y",)
    assert plan.segments["backward"].inputs == ("dy", "x", "y")
    assert plan.programs[0].steps == (Step("forward", 0), Step("backward", 0), Step("reduce", -1), Step("optimizer", -1))


def test_what_touches_a_micro_batch_leaves_the_reduce_phase() -> None:
    plan = plan_of(MLP.replace("  update w\n", "  z = gelu(y)\n  update w\n"))
    assert [step.segment for step in plan.programs[0].steps] == ["forward", "backward", "reduce", "backward.2", "optimizer"]


def test_a_later_backward_wins_over_an_earlier_one_of_the_same_name() -> None:
    text = "program\n  y = gelu(x)\n  da = backward y (dy)\n  micro-batch 1\n  y = relu(x)\n  db = backward y (dy)\n"
    plan = plan_of(text)
    forwards = [own.forward.op for segment in plan.segments.values() for own in segment.operators if isinstance(own, Backward)]
    assert forwards == ["gelu", "relu"]
    assert plan.micro_batches == 2


def test_ranks_are_selected() -> None:
    text = "mesh dp=2 pp=2 tp=2\nprogram pp=0\n  y = gelu(x)\nprogram ranks 2-3,6,7\n  y = relu(x)\n"
    assert [program.ranks for program in plan_of(text).programs] == [(0, 1, 4, 5), (2, 3, 6, 7)]


def test_a_replicated_axis_leaves_replica_0() -> None:
    plan = plan_of("mesh dp=3 tp=2\nreplicate dp\nprogram\n  y = gelu(x)\n")
    assert plan.replication == Replication("dp", 3, 2)
    assert plan.programs[0].ranks == (0, 1)


def test_shapes_follow_from_operators() -> None:
    plan = plan_of("""mesh tp=2
weight w f32[6,8] tp:S(0)
input x f32[4,8]
program
  h = linear(x, w)
  g = all-gather(h, dim=1) over tp
  s = reduce-scatter(g, dim=0) over tp
""")
    assert [plan.tensors[name].shape for name in "hgs"] == [(4, 3), (4, 6), (2, 6)]


def test_a_claim_on_an_output_takes_its_shape_from_the_plan() -> None:
    plan = plan_of("mesh dp=2\ninput x f32[4,8] dp:S(0)\noutput y dp:S(0)\nprogram\n  y = gelu(x)\n")
    assert plan.tensors["y"].whole == (4, 8)
    assert plan.tensors["y"].placements == {"dp": Shard(0)}


WRONG = [
    ("mesh tp=2\nprogram\n  y = all_reduce(x) over tp\n", 3, 7, "all-reduce"),
    ("mesh tp=2\nprogram\n  y = all-reduce(x)\n", 3, 20, "over tp"),
    ("mesh tp=2\nprogram\n  y = all-reduce(x) over dp\n", 3, 26, "tp"),
    ("mesh tp=2\nprogram\n  y = all-reduce(x) over tp,tp\n", 3, 29, "twice"),
    ("mesh tp=2\nprogram\n  y = all-reduce(x) over ranks 1,1\n", 3, 32, "twice"),
    ("mesh tp=2\nprogram\n  y = dropout(x) draws over tp,tp\n", 3, 32, "twice"),
    ("mesh tp=2\nprogram\n  y = dropout(x) draws over dp\n", 3, 29, "tp"),
    ("mesh tp=2\nprogram\n  y = dropout(x) draws alik\n", 3, 24, "alike"),
    ("mesh tp=2\nprogram\n  sent y to 1\n", 3, 3, "send"),
    ("mesh tp=2\nprogram\n  send y to 2\n", 3, 13, ""),
    ("mesh tp=2\nprogram\n  send y to tp\n", 3, 15, "tp+1"),
    ("mesh tp=2\nprogram\n  y = gelu(x) onn s\n", 3, 15, "on"),
    ("mesh tp=2\nprogram\n  y = gelu(x\n", 3, 13, ""),
    ("mesh tp=2\nprogram\n  y = gelu(x, a=b)\n", 3, 17, ""),
    ("mesh tp=2\nprogram\n  y = gelu(x) $\n", 3, 15, ""),
    ('mesh tp=2\nprogram\n  y = gelu("x)\n', 3, 12, ""),
    ("mesh tp=2\nweight w f32[3] tp:S(0, parts=[1,1])\n", 2, 13, "local"),
    ("mesh tp=2\nweight w f32[4] tp:S(1)\n", 2, 13, ""),
    ("mesh tp=2\nweight w f32[4] tp:X\n", 2, 20, "shard"),
    ("mesh tp=2\nweight w f32[4] dp:R\n", 2, 17, "tp"),
    ("mesh tp=2\nweight w f32[4]\nweight w f32[8]\n", 3, 8, "one local shape"),
    ("mesh tp=2\nmesh tp=2\n", 2, 1, ""),
    ("mesh tp=2 tp=2\n", 1, 11, ""),
    ("mesh tp=0\n", 1, 9, ""),
    ("mesh tp=99999999999999999999999999\n", 1, 9, ""),
    ("gelu(x)\n", 1, 1, "program"),
    ("mesh tp=2\nprogram\n  y = gelu(x)\nprogram ranks 1\n", 4, 1, "one program"),
    ("mesh tp=2\nprogram tp=2\n", 2, 12, ""),
    ("mesh tp=2\nsegment f forwards\n", 2, 11, "forward"),
    ("mesh tp=2\nsegment forward forward\n  y = gelu(x)\nprogram\n  run forwrd\n", 5, 7, "forward"),
    ("segment f forward (a) -> (y)\n  y = gelu(a)\nprogram\n  run f (x, x)\n", 4, 7, "takes `a`, and the step names 2"),
    ("segment f forward (a) -> (y)\n  y = gelu(a)\nprogram\n  run f -> ()\n", 4, 7, "gives `y`, and the step names 0"),
    ("program\n  dx = backward y (dy)\n", 2, 17, ""),
    ("program\n  y = linear(x, w)\n  dx = backward y (dy)\n", 3, 17, "`x`, `w`"),
    ("weight w f32[2,2]\nprogram\n  y = linear(x, w)\n  _, a = backward y (dy)\n  z = linear(y, w)\n  _, b = backward z (dz)\n",
     2, 1, "grad(w)"),
    ("output y tp:R\n", 1, 10, ""),
    ("program\n  output y\n  y = `a\\q`(x)\n", 3, 7, "escape"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "column", "help"), WRONG)
def test_wrong_text_is_reported_where_it_is_wrong(text: str, line: int, column: int, help: str) -> None:
    with pytest.raises(ReadError) as caught:
        plan_of(text)
    problem = caught.value.problem
    assert (problem.location.line, problem.location.column) == (line, column), problem
    assert help in f"{problem.message} {problem.help}"
    assert problem.location.text == text.split("\n")[line - 1]


@pytest.mark.parametrize(
    "name",
    ["a`b", "a\\b", 'a"b', "a\nb", "_", "None", "h-2", "grad(x y)", "grad(é)", "\u2028", "\ud800", "chunk", "over", "x\\`"],
)
def test_names_of_any_characters_are_quoted(name: str) -> None:
    stated = Compute(name, (name,), (name,), {name: name}, stream=name, label=name)
    segment = Segment("f", Phase.FORWARD, (), (), (stated,))
    plan = replace(plan_of("mesh tp=2\n"), segments={"f": segment}, programs=(Program((0,), (Step("f", 0),)),))
    found = plan_of(write(plan)).segments["f"].operators[0]
    assert isinstance(found, Compute)
    assert replace(found, source=None) == stated
