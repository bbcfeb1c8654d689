"""What backward computes again is what the forward pass computed, in each micro-batch once."""

from __future__ import annotations

import pytest

from tests.builders.plan_findings import findings_of_text

SEGMENTS = """micro-batches 2
weight w f32[8,8]
weight u f32[8,8]
input x f32[8,8]
loss l
segment forth forward (x) -> (y, l, ls)
  h = linear(x, w)
  a = relu(h)
  y = linear(a, u)
  l: f32[] = mean(y)
  ls = div(l, 2)
segment back backward (x, y, l, ls) -> ()
  {}
  dl = backward ls (grad(ls))
  dy = backward l (dl)
  {}
program
  run forth micro-batch 0-1
  {}
  update w, u
"""
SAME_NAMES = "h = linear(x, w)\n  a = {}(h)"
BACK = "da, grad(u) = backward {}\n  dh = backward a (da)\n  _, grad(w) = backward h (dh)"
OTHER_NAMES = "h2 = linear(x, w)\n  a2 = {}(h2)"
OTHER_BACK = "da, grad(u) = backward {}\n  dh = backward a2 (da)\n  _, grad(w) = backward h2 (dh)"
WRITTEN_OUT = OTHER_BACK.format("(dy) of y2 = linear(a2, u)")
COMPUTED = OTHER_BACK.format("y2 (dy)")
RUN = "run back micro-batch 0-1"


@pytest.mark.parametrize(
    ("again", "back", "rules"),
    [
        (SAME_NAMES.format("relu"), BACK.format("y (dy)"), set()),
        (SAME_NAMES.format("gelu"), BACK.format("y (dy)"), {"gradient-of-another-operator"}),
        (OTHER_NAMES.format("relu"), WRITTEN_OUT, set()),
        (OTHER_NAMES.format("gelu"), WRITTEN_OUT, {"gradient-of-another-tensor"}),
        (OTHER_NAMES.format("relu") + "\n  y2 = linear(a2, u)", COMPUTED, set()),
        (OTHER_NAMES.format("gelu") + "\n  y2 = linear(a2, u)", COMPUTED, {"gradient-of-another-tensor"}),
    ],
)
def test_backward_computes_the_same_again(again: str, back: str, rules: set[str]) -> None:
    found = findings_of_text(SEGMENTS.format(again, back, RUN))
    assert {finding.rule for finding in found} == rules
    if rules:
        assert "relu" in f"{found[0].message} {found[0].help}"


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ("run back micro-batch 1\n  run back micro-batch 0", []),
        ("run back micro-batch 1", ["no backward for micro-batch 0"]),
        ("run back micro-batch 1\n  run back micro-batch 1", ["runs twice for micro-batch 1", "no backward for micro-batch 0"]),
    ],
)
def test_each_micro_batch_goes_back_once(runs: str, said: list[str]) -> None:
    text = SEGMENTS.format(SAME_NAMES.format("relu"), BACK.format("y (dy)"), runs)
    found = [finding.message for finding in findings_of_text(text)]
    assert len(found) == len(said)
    assert all(any(part in message for message in found) for part in said)


@pytest.mark.parametrize(
    ("forward", "rules"),
    [
        ("silu(h)", set()),
        ("silu(x)", {"gradient-of-another-operator", "gradient-of-another-tensor"}),
        ("silu(g)", set()),
    ],
)
def test_an_operator_that_is_written_out_has_the_operands_of_the_one_that_ran(forward: str, rules: set[str]) -> None:
    text = "weight w f32[8,8]\ninput x f32[4,8]\ninput da f32[4,8]\nprogram\n  h = linear(x, w)\n  g = identity(h)\n"
    text += f"  a = silu(h)\n  dh = backward (da) of a = {forward}\n  _, grad(w) = backward h (dh)\n  update w\n"
    assert {finding.rule for finding in findings_of_text(text)} == rules


@pytest.mark.parametrize(
    ("runs", "rules"),
    [
        ("run forth micro-batch 0\n  run back micro-batch 0\n  run forth micro-batch 1\n  run back micro-batch 1", set()),
        ("run forth micro-batch 1\n  run back micro-batch 1", {"unbalanced-backward"}),
        ("run back micro-batch 0\n  run forth micro-batch 1\n  run back micro-batch 1", set()),
        ("run back micro-batch 0-1\n  run forth micro-batch 1", {"repeated-forward"}),
    ],
)
def test_a_forward_that_runs_again_before_its_backward_is_a_recomputation(runs: str, rules: set[str]) -> None:
    text = SEGMENTS.format(SAME_NAMES.format("relu"), BACK.format("y (dy)"), runs)
    assert {finding.rule for finding in findings_of_text(text)} == rules


@pytest.mark.parametrize(
    ("ran", "written", "is_found"),
    [
        ("sum(h)", "sum(h)", False),
        ("sum(h)", "mean(h)", True),
        ("mean(h)", "sum(h)", True),
    ],
)
def test_a_loss_goes_back_as_it_was_made(ran: str, written: str, is_found: bool) -> None:
    text = f"weight w f32[8,8]\ninput x f32[4,8]\nloss l\nprogram\n  h = linear(x, w)\n  l: f32[] = {ran}\n"
    text += f"  dh = backward (grad(l)) of l = {written}\n  _, grad(w) = backward h (dh)\n  update w\n"
    assert ("gradient-of-another-operator" in {finding.rule for finding in findings_of_text(text)}) is is_found


@pytest.mark.parametrize(
    ("ran", "written", "is_found"),
    [
        ("mul(h, s)", "mul(h, s)", False),
        ("mul(h, s)", "add(h, s)", True),
        ("div(h, 2.0)", "mul(h, 0.5)", False),
        ("sign(h)", "identity(h)", False),
        ("round(h)", "mul(h, 1.0)", False),
        ("identity(h)", "mul(h, 2.0)", False),
    ],
)
def test_only_what_rounds_or_passes_a_value_on_is_given_another_gradient(ran: str, written: str, is_found: bool) -> None:
    text = "weight w f32[8,8]\nweight s f32[8]\ninput x f32[4,8]\ninput dy f32[4,8]\nprogram\n  h = linear(x, w)\n"
    text += f"  y = {ran}\n  dh = backward (dy) of y = {written}\n  _, grad(w) = backward h (dh)\n  update w\n"
    assert ("gradient-of-another-operator" in {finding.rule for finding in findings_of_text(text)}) is is_found
