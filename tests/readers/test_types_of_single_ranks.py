"""Names that have another type on the ranks of one program."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builders.plan_findings import findings_of_plan, rules_of_text
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.ir.plan import Plan, Role
from tvlint.readers.document import ReadError
from tvlint.readers.plan_json import reader as plan_json
from tvlint.readers.plan_text import reader as plan_text
from tvlint.reporters.plan import json as json_writer
from tvlint.reporters.plan import text as text_writer

REFERENCE = """
weight w f32[8,8]
input x f32[8,8]
output l
program
  h = linear(x, w)
  l = sum(h)
  dh = backward l (grad(l))
  _, grad(w) = backward h (dh)
  update w
"""

BY_ROWS = """
mesh tp=2
weight w f32[5,8] region [0:5,0:8] of w[8,8]
input x f32[8,8]
output l
program tp=0
  h = linear(x, w)
  p = sum(h)
  l = all-reduce(p) over tp
  dh = backward p (grad(l))
  _, grad(w) = backward h (dh)
  update w
program tp=1
  weight w f32[3,8] region [5:8,0:8] of w[8,8]
  h = linear(x, w)
  p = sum(h)
  l = all-reduce(p) over tp
  dh = backward p (grad(l))
  _, grad(w) = backward h (dh)
  update w
"""


def plan_of(text: str) -> Plan:
    plan = plan_text.read("example.plan", text).plan
    assert plan is not None
    return plan


def outcome(text: str) -> Outcome:
    return prove(plan_of(text), plan_of(REFERENCE)).outcome


def test_a_program_declares_anew_and_what_follows_has_its_types() -> None:
    plan = plan_of(BY_ROWS)
    own = plan.tensors["w@tp=1"]
    assert (own.shape, own.role, own.logical, own.gradient) == ((3, 8), Role.WEIGHT, "w", "grad(w@tp=1)")
    assert plan.tensors["grad(w@tp=1)"].gradient_of == "w@tp=1"
    assert plan.tensors["h@tp=1"].shape == (8, 3)
    assert "p@tp=1" not in plan.tensors
    assert plan.tensors["w"].shape == (5, 8)


def test_unequal_shards_that_are_right_are_proved() -> None:
    assert findings_of_plan(plan_of(BY_ROWS)) == []
    assert outcome(BY_ROWS) is Outcome.PROVED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[3,8] region [5:8,", "[4,8] region [4:8,"),
        ("[3,8] region [5:8,", "[3,8] region [4:7,"),
        ("of w[8,8]\n  h = linear(x, w)", "of w[8,8]\n  z = mul(x, 2.0)\n  h = linear(z, w)"),
    ],
)
def test_unequal_shards_that_are_wrong_are_not_proved(old: str, new: str) -> None:
    assert old in BY_ROWS
    assert outcome(BY_ROWS.replace(old, new)) is not Outcome.PROVED


def test_an_output_of_another_type_on_some_ranks_is_judged_too() -> None:
    head, _, tail = BY_ROWS.rpartition("  l = all-reduce(p) over tp\n")
    assert outcome(f"{head}  q = all-reduce(p) over tp\n  l: bf16[] = mul(q, 2.0)\n{tail}") is not Outcome.PROVED


@pytest.mark.parametrize("form", [text_writer.write, json_writer.write])
def test_both_formats_carry_the_types(form: Any) -> None:
    written = form(plan_of(BY_ROWS))
    reader = plan_json if form is json_writer.write else plan_text
    again = reader.read("again", written).plan
    assert again is not None
    assert again.tensors["w@tp=1"] == plan_of(BY_ROWS).tensors["w@tp=1"]
    assert prove(again, plan_of(REFERENCE)).outcome is Outcome.PROVED


def json_plan(**own: Any) -> str:
    compute = {"kind": "compute", "op": "linear", "inputs": ["x", "w"], "outputs": ["h"]}
    reduce = {"kind": "all-reduce", "inputs": ["h"], "outputs": ["y"], "group": {"axes": ["tp"]}}
    return json.dumps({
        "tvlint_plan": 1,
        "mesh": [{"axis": "tp", "size": 2}],
        "tensors": {
            "x": {"shape": [5, 8], "dtype": "float32", "role": "input"},
            "w": {"shape": [8, 8], "dtype": "float32", "role": "weight"},
        },
        "segments": {"f": {"phase": "forward", "inputs": ["x"], "outputs": ["y"], "operators": [compute, reduce]}},
        "programs": [
            {"where": {"tp": 0}, "steps": [{"segment": "f", "micro_batch": 0}]},
            {"where": {"tp": 1}, "tensors": own, "steps": [{"segment": "f", "micro_batch": 0}]},
        ],
    })  # fmt: skip


def test_a_program_in_json_has_tensors_of_its_own() -> None:
    plan = plan_json.read("plan.json", json_plan(x={"shape": [3, 8], "dtype": "float32", "role": "input"})).plan
    assert plan is not None
    assert plan.tensors["h@tp=1"].shape == (3, 8)
    assert [step.segment for program in plan.programs for step in program.steps] == ["f", "f@tp=1"]
    assert "mismatched-collective" in {finding.rule for finding in findings_of_plan(plan)}


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"z": {"shape": [3], "dtype": "float32", "role": "input"}}, "no tensor of this plan"),
        ({"x": {"shape": [3, 8], "dtype": "float32", "role": "weight"}}, "of role input elsewhere"),
    ],
)
def test_types_of_nothing_in_the_plan_are_told_in_json(own: Any, message: str) -> None:
    with pytest.raises(ReadError, match=message):
        plan_json.read("plan.json", json_plan(**own))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("tensor h f32[4,8]\nprogram\n  h: f32[5,8] = f(x)\n", "on a rank here"),
        ("program\n  h: f32[4,8] = f(x)\n  h: f32[5,8] = f(x)\n", "on a rank here"),
        ("program tp=0\n  h: f32[4,8] = f(x)\nprogram tp=1\n  h: f32[5,8] = f(x)\n  h: f32[6,8] = g(x)\n", "two types"),
        ("program tp=0\n  h = f(x)\nprogram tp=1\n  weight x f32[4,8]\n", "on a rank here"),
    ],
)  # fmt: skip
def test_contradictions_within_one_program_are_told(body: str, message: str) -> None:
    with pytest.raises(ReadError, match=message):
        plan_text.read("example.plan", f"mesh tp=2\ninput x f32[8,8]\n{body}")


def test_a_cast_between_mates_of_a_collective_is_told() -> None:
    text = """
mesh tp=2
input x f32[8,8] tp:S(0)
program tp=0
  c: bf16[4,8] = to(x, bfloat16)
  y = all-gather(c, dim=0) over tp
program tp=1
  c: f32[4,8] = identity(x)
  y = all-gather(c, dim=0) over tp
"""
    assert "mismatched-collective" in rules_of_text(text)
    assert rules_of_text(text.replace("f32[4,8] = identity(x)", "bf16[4,8] = to(x, bfloat16)")) == set()


SLICES = """
mesh tp=2
weight w f32[4,8] region [0:4,0:8] of w[8,8]
input x f32[8,8]
loss l
"""

ON_ITS_SLICE = """
  y = linear(x, w)
  z = all-gather(y, dim=1) over tp
  g = gelu(z)
  l = sum(g)
  dg = backward l (grad(l))
  dz = backward g (dg)
  dy = chunk(dz, dim=1) over tp
  _, grad(w) = backward y (dy)
  update w
"""

WHOLE = """
weight w f32[8,8]
input x f32[8,8]
loss l
program
  y = linear(x, w)
  g = gelu(y)
  l = sum(g)
  dg = backward l (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
  update w
"""


@pytest.mark.parametrize(("rows", "proved"), [("4:8", True), ("0:4", False)])
def test_a_slice_of_a_weight_that_a_program_declares_anew_has_a_gradient_of_its_own(rows: str, proved: bool) -> None:
    anew = f"program tp=1\n  weight w f32[4,8] region [{rows},0:8] of w[8,8]"
    plan = plan_text.read("example.plan", f"{SLICES}program tp=0{ON_ITS_SLICE}{anew}{ON_ITS_SLICE}").plan
    reference = plan_text.read("reference.plan", WHOLE).plan
    assert plan is not None
    assert reference is not None
    assert (prove(plan, reference).outcome is Outcome.PROVED) == proved


ROWS = """
mesh cp=2
weight w f32[8,8]
input x f32[8,8]
loss l f32[] cp:P
program cp=0
  s = narrow(x, 0, 0, 5)
  y = linear(s, w)
  l = sum(y)
  dy = backward l (grad(l))
  _, grad(w) = backward y (dy)
  reduce-gradients w over cp
  update w
program cp=1
  s = narrow(x, 0, 5, LENGTH)
  y = linear(s, w)
  l = sum(y)
  dy = backward l (grad(l))
  _, grad(w) = backward y (dy)
  reduce-gradients w over cp
  update w
"""
ALL_ROWS = """
mesh d=1
weight w f32[8,8]
input x f32[8,8]
loss l
program
  y = linear(x, w)
  l = sum(y)
  dy = backward l (grad(l))
  _, grad(w) = backward y (dy)
  update w
"""


def test_a_result_without_annotation_has_the_type_that_follows_in_its_program() -> None:
    plan = plan_text.read("rows.plan", ROWS.replace("LENGTH", "3")).plan
    reference = plan_text.read("reference.plan", ALL_ROWS).plan
    assert plan is not None
    assert reference is not None
    shapes = {name: plan.tensors[name].shape for name in ("s", "s@cp=1", "y", "y@cp=1", "dy@cp=1")}
    assert shapes == {"s": (5, 8), "s@cp=1": (3, 8), "y": (5, 8), "y@cp=1": (3, 8), "dy@cp=1": (3, 8)}
    assert prove(plan, reference).outcome is Outcome.PROVED
    lacking = plan_text.read("rows.plan", ROWS.replace("LENGTH", "2")).plan
    assert lacking is not None
    assert prove(lacking, reference).outcome is Outcome.REFUTED


def test_a_result_of_no_declared_type_has_the_type_that_follows_in_its_program_in_json() -> None:
    text = plan_text.read("rows.plan", ROWS.replace("LENGTH", "3")).plan
    reference = plan_text.read("reference.plan", ALL_ROWS).plan
    assert text is not None
    assert reference is not None
    document = json.loads(json_writer.write(text).replace("@cp=1", ""))
    for name in ("s", "y", "dy"):
        del document["tensors"][name]
    plan = plan_json.read("rows.json", json.dumps(document)).plan
    assert plan is not None
    assert [plan.tensors[name].shape for name in ("s", "s@cp=1", "y@cp=1")] == [(5, 8), (3, 8), (3, 8)]
    assert prove(plan, reference).outcome is Outcome.PROVED
