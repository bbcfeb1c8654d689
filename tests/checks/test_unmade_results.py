"""What a plan or a segment returns and nothing makes is an error at the place that names it."""

from __future__ import annotations

import pytest

from tests.builders.plan_findings import findings_of_plan, findings_of_text, rules_of_text
from tvlint.readers.plan_json import reader as json_reader
from tvlint.readers.plan_text import reader as plan_text
from tvlint.reporters.plan import json as json_writer

PLAN = """mesh tp=2
weight w f32[8,8] tp:S(1)
input x f32[4,8] tp:S(1)
output {}
segment only forward (x) -> ({})
  part = linear(x, w)
  result = all-reduce(part) over tp
program
  run only
"""


def said(text: str) -> list[tuple[str, int | None, str]]:
    return [(finding.message, finding.location.line, finding.help) for finding in findings_of_text(text)]


def test_results_that_are_made_or_given_are_right() -> None:
    for output in ("result", "result f32[4,8]", "w", "x", "grad(w)"):
        assert said(PLAN.format(output, "result")) == []


def test_a_misspelt_output_is_named_with_the_name_that_it_is_near_to() -> None:
    assert said(PLAN.format("reslut", "result")) == [
        ("the plan returns `reslut`, which nothing makes", 4, "did you mean `result`?")
    ]


def test_a_misspelt_result_of_a_segment_is_named_once() -> None:
    assert said(PLAN.format("reslut", "reslut")) == [
        ("`only` gives `reslut`, which nothing makes", 6, "did you mean `result`?")
    ]


def test_plan_json_says_so_too() -> None:
    plan = plan_text.read("example.plan", PLAN.format("reslut", "result")).plan
    assert plan is not None
    again = json_reader.read("example.json", json_writer.write(plan)).plan
    assert again is not None
    assert [finding.location.pointer for finding in findings_of_plan(again)] == ["outputs"]


def test_a_result_of_another_shape_than_declared_is_made_all_the_same() -> None:
    text = """mesh pp=2 dp=2
weight a f32[8,8]
weight b f32[8,8]
input x f32[4,8] dp:S(0)
output y f32[4,8] dp:S(0)
program pp=0
  h = linear(x, a)
  send h to pp+1
program pp=1
  recv h: f32[4,8] from pp-1
  y = linear(h, b)
"""
    assert [finding.rule for finding in findings_of_text(text)] == ["mismatched-message"]


LOADED = """weight w f32[4,4]
input data f32[4,4]
input later f32[4,4]
output y
segment load data () -> (data)
  data = dataloader()
segment forth forward (data) -> (y)
  y = linear(data, w)
program
  run load micro-batch 0 () -> (data)
  run forth micro-batch 0 (data) -> (y)
{}
  run forth micro-batch 1 (later) -> (y1)
"""


@pytest.mark.parametrize(
    ("load", "rules"),
    [
        ("  run load micro-batch 1 () -> (later)", set()),
        ("  run load micro-batch 2 () -> (later)", {"use-before-definition"}),
        ("", {"use-before-definition"}),
    ],
)
def test_an_input_that_is_loaded_for_some_micro_batches_is_loaded_for_all(load: str, rules: set[str]) -> None:
    assert rules_of_text(LOADED.format(load).replace("\n\n", "\n")) & {"use-before-definition"} == rules
