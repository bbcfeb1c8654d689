"""A loss that each replica returns as the mean of its own part, in plans whose gradients need normal forms to be proved."""

from __future__ import annotations

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.equivalence.verdict.compare_outputs import OWN_MEAN
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

REFERENCE = """weight w f32[8,4]
weight v f32[4,8]
input x f32[6,4]
loss l
program
  h = linear(x, w)
  a = gelu(h)
  y = linear(a, v)
  s = pow(y, 2)
  l: f32[] = mean(s)
"""
BUCKET = (
    "mesh dp=2\n"
    + REFERENCE.replace("x f32[6,4]", "x f32[6,4] dp:S(0)")
    + """end g1 = flatten(grad(w))
end g2 = flatten(grad(v))
end f = cat([g2, g1], dim=0)
end fd = div(f, 2)
end fr = all-reduce(fd) over dp
end r2, r1 = split(fr, [32, 32], dim=0)
end grad(w) = view(r1, [8, 4])
end grad(v) = view(r2, [4, 8])
"""
)


def test_a_flat_bucket_is_proved_and_the_loss_that_is_not_declared_is_taken_for_what_is_averaged() -> None:
    verdict = verdict_on(with_backward(BUCKET), with_backward(REFERENCE))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert [text for text in verdict.assumptions if "averaged" in text] == [OWN_MEAN.format("l", "`dp`")]
    declared = verdict_on(with_backward(BUCKET.replace("loss l", "loss l f32[] dp:P(avg)")), with_backward(REFERENCE))
    assert declared.outcome is Outcome.PROVED
    assert not any("averaged" in text for text in declared.assumptions)


@pytest.mark.parametrize(("returned", "outcome"), [("mul(m, 2.0)", Outcome.REFUTED), ("mul(m, 0.5)", Outcome.UNKNOWN)])
def test_another_multiple_of_its_own_mean_is_none(returned: str, outcome: Outcome) -> None:
    text = BUCKET.replace("l: f32[] = mean(s)", f"m: f32[] = mean(s)\nl: f32[] = {returned} || none")
    assert verdict_on(with_backward(text), with_backward(REFERENCE)).outcome is outcome


@pytest.mark.parametrize(("before", "after"), [("div(f, 2)", "div(f, 4)"), ("all-reduce(fd) over dp", "clone(fd)")])
def test_a_wrong_bucket_is_refuted_beside_such_a_loss(before: str, after: str) -> None:
    verdict = verdict_on(with_backward(BUCKET.replace(before, after)), with_backward(REFERENCE))
    assert verdict.outcome is Outcome.REFUTED
    assert {reason.name for reason in verdict.reasons if reason.refutes} != {"own-part-returned"}


STATISTICS = """buffer w f32[8,8]
buffer running f32[8]
input x f32[8,8]
output y
output kept
program
  h = linear(x, w)
  m = mean(h, dim=0)
  a = mul(running, 0.9)
  b = mul(m, 0.1)
  kept = add(a, b)
  y = sub(h, m)
"""


def test_running_statistics_of_each_replica_are_not_taken_for_what_is_averaged() -> None:
    right = STATISTICS.replace("x f32[8,8]", "x f32[8,8] dp:S(0)").replace("output y", "output y f32[8,8] dp:S(0)")
    right = "mesh dp=2\n" + right.replace("m = mean(h, dim=0)", "m0 = mean(h, dim=0)\n  m = all-reduce avg(m0) over dp")
    assert verdict_on(right, STATISTICS).outcome is Outcome.PROVED
    verdict = verdict_on(right.replace("mul(m, 0.1)", "mul(m0, 0.1)"), STATISTICS)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "own-part-returned" in {reason.name for reason in verdict.reasons}


NUMBER = """buffer running f32[]
input x f32[8,8]
output y
output kept
program
  q = pow(x, 2)
  m: f32[] = mean(q)
  a = mul(running, 0.9)
  b = mul(m, 0.1)
  k = add(a, b)
  kept = add(a, b)
  y = div(x, k)
"""


def test_a_running_number_of_each_replica_is_not_taken_for_what_is_averaged() -> None:
    right = NUMBER.replace("x f32[8,8]", "x f32[8,8] dp:S(0)").replace("output y", "output y f32[8,8] dp:S(0)")
    right = "mesh dp=2\n" + right.replace("m: f32[] = mean(q)", "m0: f32[] = mean(q)\n  m = all-reduce avg(m0) over dp")
    assert verdict_on(right, NUMBER).outcome is Outcome.PROVED
    wrong = right.replace("kept = add(a, b)", "b0 = mul(m0, 0.1)\n  kept = add(a, b0)")
    assert verdict_on(wrong, NUMBER).outcome is Outcome.UNKNOWN
