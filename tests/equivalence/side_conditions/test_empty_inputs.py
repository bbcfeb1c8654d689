"""An input with nothing in it is no part of a batch, and what is made of a slice of no elements is unknown."""

from __future__ import annotations

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.verdicts.test_text_plans import verdict_on
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


@pytest.mark.parametrize("cut", ["narrow(y, 0, 8, 0)", "narrow(y, 1, 4, 0)"])
@pytest.mark.parametrize("make", ["mean(e)", "prod(e)", "sum(e)", "cat([e, y], dim=0)", "group_norm(e, 1)"])
def test_what_is_made_of_no_elements_is_unknown_on_numbers_too(cut: str, make: str) -> None:
    plan = REFERENCE.replace("  l: f32[1] = sum(y)", f"  e = {cut}\n  k = {make}\n  s = sum(k)\n  r = sum(y)\n  l = add(r, s)")
    for texts in ((plan, REFERENCE), (REFERENCE, plan)):
        verdict = verdict_on(*map(with_backward, texts))
        assert verdict.outcome is Outcome.UNKNOWN
        assert any("of no elements" in reason.message for reason in verdict.reasons)
