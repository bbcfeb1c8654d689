"""Small mistakes are named and their correct twins are not."""

from __future__ import annotations

import pytest

from tests.builders.plan_findings import findings_of_plan, findings_of_text
from tests.sampling import sampled
from tests.scenarios import (
    blind_pairs,
    blind_shards,
    claims,
    collectives,
    correct_plans,
    experts,
    foreign_layers,
    foreign_parallel,
    foreign_training,
    gradient_scales,
    gradients,
    order,
    partial_sums,
    quantisation,
    sequences,
)
from tests.scenarios.scenario import Scenario
from tvlint.findings import Severity
from tvlint.readers.plan_json import reader as json_reader
from tvlint.readers.plan_text import reader as plan_text
from tvlint.reporters.plan import json as json_writer

ROOMS = (
    partial_sums, collectives, sequences, gradients, order, experts, quantisation, claims, correct_plans, foreign_layers,
    foreign_training, foreign_parallel, gradient_scales, blind_pairs,
    blind_shards,
)  # fmt: skip
SCENARIOS = [each for room in ROOMS for each in room.SCENARIOS]


NOT_FOUND = {
    **dict.fromkeys(
        (f"halves of a gathered value exchanged on {mesh}" for mesh in ("tp=2", "tp=4", "dp=2 tp=4")),
        "exchanging halves of a complete value is a computation, as rotary embeddings do it; only a reference tells",
    ),
    **dict.fromkeys(
        (
            "sharded columns reshaped into rows",
            "sequence-parallel layer: attention reshape mixes heads and sequence",
        ),
        "nothing is known of a view that takes pieces of a dimension apart",
    ),
}
"""Mistakes that the relations of a plan do not show, by scenario, and why."""


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.xfail(strict=True, reason=NOT_FOUND[name])] if name in NOT_FOUND else []


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(each, marks=_marks(each.name)) for each in SCENARIOS if each.rules],
    ids=lambda each: each.name,
)
def test_the_mistake_is_named(scenario: Scenario) -> None:
    spoken = {finding.rule for finding in findings_of_text(scenario.text) if finding.severity is not Severity.NOTE}
    assert spoken & scenario.rules


@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if not each.rules], ids=lambda each: each.name)
def test_the_correct_plan_has_no_error(scenario: Scenario) -> None:
    errors = [finding for finding in findings_of_text(scenario.text) if finding.severity is Severity.ERROR]
    assert errors == []


@pytest.mark.parametrize("scenario", sampled(SCENARIOS, 5), ids=lambda each: each.name)
def test_plan_json_is_judged_like_plan_text(scenario: Scenario) -> None:
    plan = plan_text.read("example.plan", scenario.text).plan
    assert plan is not None
    again = json_reader.read("example.json", json_writer.write(plan)).plan
    assert again is not None
    assert {finding.rule for finding in findings_of_plan(again)} == {finding.rule for finding in findings_of_plan(plan)}


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("tied weight reduced over the replicas only", {"tied-gradient-not-reduced"}),
        ("whole gradient for a sharded parameter", {"missing-gradient-reduction"}),
        ("combine with the splits of dispatch", {"expert-exchange-not-undone"}),
        ("a split backward without its second half for one micro-batch", {"unbalanced-backward"}),
        ("heads whose gradients are not exchanged for sequence", {"gradient-not-exchanged"}),
        ("ddp: twice reduced", {"doubled-allreduce"}),
        ("ddp: in-place scale while in flight (WAR/RAW)", {"buffer-in-flight"}),
    ],
)
def test_one_mistake_is_of_one_rule(name: str, rules: set[str]) -> None:
    text = next(each.text for each in SCENARIOS if each.name == name)
    assert {finding.rule for finding in findings_of_text(text) if finding.severity is Severity.ERROR} == rules


@pytest.mark.parametrize(
    ("name", "lines"),
    [("gathered weight of another layer", [12]), ("gradient of one weight stored as that of another", [12, 13])],
)
def test_a_gradient_of_another_weight_is_blamed_where_it_becomes_one(name: str, lines: list[int]) -> None:
    text = next(each.text for each in SCENARIOS if each.name == name)
    assert [finding.location.line for finding in findings_of_text(text)] == lines
