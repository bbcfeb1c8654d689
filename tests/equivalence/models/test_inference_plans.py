"""Plans without weights to train are compared by what they return, and the verdict says so."""

from __future__ import annotations

import pytest

from tests.builders.numbers import on_numbers_of
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.equivalence.verdict.numbers.outcome import Agreement, Difference, NotRun
from tvlint.findings import Outcome

REFERENCE = """buffer w f32[8,16]
buffer v f32[4,8]
input x f32[6,16]
output y
program
  h = linear(x, w)
  a = gelu(h)
  y = linear(a, v)
"""
PLAN = """mesh tp=2
buffer w f32[8,16] tp:S(0)
buffer v f32[4,8] tp:S(1)
input x f32[6,16]
output y
program
  h = linear(x, w)
  a = gelu(h)
  p = linear(a, v)
  y = all-reduce(p) over tp
"""


def test_what_is_not_trained_is_proved_by_what_it_returns() -> None:
    verdict = verdict_on(PLAN, REFERENCE)
    assert (verdict.outcome, verdict.claim) == (Outcome.PROVED, "returns the same values as")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("  y = all-reduce(p) over tp\n", "  y = identity(p)\n", "incomplete-output"),
        ("  a = gelu(h)", "  b = all-reduce(h) over tp\n  a = gelu(b)", ""),
        ("gelu(h)", "relu(h)", ""),
    ],
)
def test_a_wrong_one_is_not(old: str, new: str, reason: str) -> None:
    verdict = verdict_on(PLAN.replace(old, new), REFERENCE)
    assert verdict.outcome is not Outcome.PROVED
    if reason:
        assert (verdict.outcome, verdict.reasons[0].name) == (Outcome.REFUTED, reason)
        assert verdict.denial == "does not return the same values as"


@pytest.mark.parametrize("which", ["reference", "plan"])
def test_weights_that_no_gradient_reaches_are_not_taken_for_constants(which: str) -> None:
    plan, reference = PLAN, REFERENCE
    if which == "reference":
        reference = reference.replace("buffer w", "weight w")
    plan = plan.replace("buffer w", "weight w")
    verdict = verdict_on(plan, reference)
    assert verdict.outcome is Outcome.UNKNOWN
    expected = "reference-not-understood" if which == "reference" else "unknown-weight"
    assert expected in {reason.name for reason in verdict.reasons}


def _frozen(text: str) -> str:
    """Return a plan with frozen weights for buffers."""
    lines = (f"{line.replace('buffer', 'weight')} frozen" if "buffer" in line else line for line in text.splitlines())
    return "\n".join(lines) + "\n"


def test_weights_that_are_all_frozen_are_not_trained() -> None:
    verdict = verdict_on(_frozen(PLAN), _frozen(REFERENCE))
    assert (verdict.outcome, verdict.claim) == (Outcome.PROVED, "returns the same values as")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  y = all-reduce(p) over tp\n", "  y = identity(p)\n"),
        ("gelu(h)", "relu(h)"),
        ("tp:S(1)", "tp:S(1, order=[[1],[0]])"),
        ("weight v f32[4,8] tp:S(1) frozen", "weight v f32[4,8] tp:S(1)"),
    ],
)
def test_a_wrong_one_with_frozen_weights_is_not_proved(old: str, new: str) -> None:
    plan = _frozen(PLAN)
    assert old in plan
    trained = "" if "frozen" not in old else "  _, grad(v) = backward p (grad(y))\n  update v\n"
    assert verdict_on(plan.replace(old, new) + trained, _frozen(REFERENCE)).outcome is not Outcome.PROVED


SOFTMAX = "input x f32[4,6]\ninput v f32[6,3]\noutput y\nprogram\n  p = softmax(x, dim=-1)\n  y = matmul(p, v)\n"
BY_ROWS = """mesh cp=2
input x f32[4,6] cp:S(0)
input v f32[6,3]
output y f32[4,3] cp:S(0)
program
  m = amax(x, dim=0, keepdim=True)
  d = sub(x, m)
  e = exp(d)
  f = exp(m)
  w = mul(e, f)
  s = sum(w, dim=-1, keepdim=True)
  p = div(w, s)
  y = matmul(p, v)
"""


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        ("", "", Agreement),
        ("f = exp(m)", "f = sigmoid(m)", Difference),
        ("p = div(w, s)", "p = div(w, 2)", Difference),
        ("output y f32[4,3] cp:S(0)", "output y", NotRun),
    ],
)
def test_slices_that_are_returned_are_compared_on_numbers(old: str, new: str, outcome: type) -> None:
    parallel, reference = plans(BY_ROWS.replace(old, new), SOFTMAX)
    assert isinstance(on_numbers_of(parallel, reference), outcome)


def test_another_returned_value_refutes_plans_that_train_nothing() -> None:
    wrong = verdict_on(BY_ROWS.replace("f = exp(m)", "f = sigmoid(m)"), SOFTMAX)
    assert (wrong.outcome, wrong.reasons[0].name) == (Outcome.REFUTED, "other-numbers")
    assert "`y`, returned on every rank, is another one" in wrong.reasons[0].message
