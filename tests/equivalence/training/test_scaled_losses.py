"""Losses that are divided before they are added up, and what is told where many gradients hang on one mistake."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

REFERENCE = """
weight w f32[4,4]
weight v f32[4,4]
weight u f32[4,4]
input x f32[8,4]
loss l
program
  a = linear(x, w)
  b = linear(a, v)
  y = linear(b, u)
  z = tanh(y)
  l: f32[1] = mean(z)
  dz = backward l (grad(l))
  dy = backward z (dz)
  db, grad(u) = backward y (dy)
  da, grad(v) = backward b (db)
  _, grad(w) = backward a (da)
"""

DIVIDED = (
    REFERENCE.replace("weight w", "mesh dp=2\nweight w")
    .replace("x f32[8,4]", "x f32[8,4] dp:S(0)")
    .replace(
        "  l: f32[1] = mean(z)\n  dz = backward l (grad(l))\n",
        """  m: f32[1] = mean(z)
  n = div(m, 2)
  l = all-reduce(n) over dp
  dm = backward n (grad(l))
  dz = backward m (dm)
""",
    )
    + "  reduce-gradients w, v, u over dp\n"
)


@pytest.mark.parametrize("scale", ["div(m, 2)", "mul(m, 0.5)", "div(m, 2.0)"])
def test_a_mean_that_is_divided_by_the_ranks_before_it_is_added_up_is_the_mean(scale: str) -> None:
    text = DIVIDED.replace("div(m, 2)", scale)
    verdict = verdict_on(text, REFERENCE)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert compare(*plans(REFERENCE, text)).outcome == "equal"


WRONG = {
    "by another number": ("div(m, 2)", "div(m, 4)"),
    "the other way": ("div(m, 2)", "mul(m, 2)"),
    "what divides by the mean": ("div(m, 2)", "div(2, m)"),
    "and averaged as well": ("w, v, u over dp", "w, v, u over dp by avg"),
    "in the forward pass only": ("dz = backward m (dm)", "dz = backward m (grad(l))"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_loss_that_is_divided_otherwise_is_not(name: str) -> None:
    before, after = WRONG[name]
    assert before in DIVIDED
    text = DIVIDED.replace(before, after)
    assert compare(*plans(REFERENCE, text)).outcome != "equal"
    assert verdict_on(text, REFERENCE).outcome is not Outcome.PROVED


def test_gradients_that_hang_on_one_gap_are_told_once() -> None:
    text = DIVIDED.replace("tanh(y)", "exotic(y)")
    reasons = verdict_on(text, REFERENCE).reasons
    assert [reason.name for reason in reasons].count("undecided-gradient") <= 1
    assert reasons[0].name == "unsupported-operator"
    odd = verdict_on(DIVIDED, REFERENCE.replace("tanh(y)", "exotic(y)"))
    assert [reason.name for reason in odd.reasons] == ["unsupported-operator", "reference-gradient"]
    assert "`u`, `v`, `w`" in odd.reasons[1].message or "`w`, `v`, `u`" in odd.reasons[1].message


SHARES = REFERENCE.replace("weight w", "micro-batches 4\nweight w").replace("x f32[8,4]", "x f32[2,4]").replace(
    "  l: f32[1] = mean(z)\n  dz = backward l (grad(l))\n",
    "  m: f32[1] = mean(z)\n  l = div(m, 4)\n  dm = backward l (grad(l))\n  dz = backward m (dm)\n",
)  # fmt: skip
LOOP = "".join(f"  run step micro-batch {number}\n" for number in range(4))


def in_micro_batches(text: str) -> str:
    head, body = text.split("program\n")
    forward, backward = body.split("  dm = ")
    back = "segment back backward mirror step\n  dm = " + backward
    return head + "segment step forward\n" + forward + back + "program\n" + LOOP + LOOP.replace("step", "back")


def test_each_micro_batch_may_return_its_share_of_the_mean() -> None:
    text = in_micro_batches(SHARES)
    verdict = verdict_on(text, REFERENCE)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize("other", ["div(m, 2)", "mul(m, 4)", "identity(m)", "add(m, 4)"])
def test_another_share_is_not_the_mean(other: str) -> None:
    text = in_micro_batches(SHARES.replace("div(m, 4)", other))
    assert verdict_on(text, REFERENCE).outcome is not Outcome.PROVED
