"""An input with nothing in it is no part of a batch."""

from __future__ import annotations

from tests.builders.plan_tapes import with_backward
from tests.equivalence.test_text_plans import verdict_on
from tvlint.findings import Outcome

REFERENCE = """
weight w f32[4,8]
input x f32[8,8]
loss l
program
  y = linear(x, w)
  l: f32[1] = sum(y)
"""


def test_an_empty_input_is_not_the_whole_one() -> None:
    plan = REFERENCE.replace("x f32[8,8]", "x f32[0,8]")
    verdict = verdict_on(with_backward(plan), with_backward(REFERENCE))
    assert verdict.outcome is not Outcome.PROVED
    assert any("`x` has shape" in reason.message for reason in verdict.reasons)
