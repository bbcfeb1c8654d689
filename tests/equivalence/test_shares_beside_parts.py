"""A share of a bias that each rank adds to its part of a sum: the ranks' shares must add up to the bias."""

from __future__ import annotations

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.test_attention import plans
from tests.equivalence.test_text_plans import in_use
from tvlint.equivalence.verdict.prove import Verdict, prove
from tvlint.findings import Outcome

REFERENCE = """weight v f32[4,8]
weight w f32[8,4]
weight b f32[4]
input x f32[6,4]
loss l
program
  h = linear(x, w)
  a = gelu(h)
  y = linear(a, v, b)
  s = pow(y, 2)
  l: f32[] = sum(s)
"""
ADDED = REFERENCE.replace("y = linear(a, v, b)", "c = linear(a, v)\n  y = add(c, b)")
SPLIT = REFERENCE.replace("v f32[4,8]", "v f32[4,8] tp:S(1)").replace("w f32[8,4]", "w f32[8,4] tp:S(0)")
PLAN = f"mesh tp=2\n{SPLIT}end reduce-gradients b over tp\n"
SPELLINGS = {
    "in the product": "share = div(b, 2)\n  part = linear(a, v, share)\n  y = all-reduce(part) over tp",
    "after the product": "share = div(b, 2)\n  c = linear(a, v)\n  part = add(c, share)\n  y = all-reduce(part) over tp",
    "multiplied": "share = mul(b, 0.5)\n  c = linear(a, v)\n  part = add(share, c)\n  y = all-reduce(part) over tp",
}


def verdict_of(plan: str, reference: str = REFERENCE) -> Verdict:
    """Prove a plan against a reference, both with the backward passes that autograd makes."""
    parallel, single = plans(with_backward(plan), with_backward(reference))
    return prove(in_use(parallel), in_use(single))


@pytest.mark.parametrize("reference", [REFERENCE, ADDED], ids=["linear", "add"])
@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_shares_of_a_bias_add_up_to_it(spelling: str, reference: str) -> None:
    verdict = verdict_of(PLAN.replace("y = linear(a, v, b)", spelling), reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


WRONG = {
    "of which each rank adds the whole": ("div(b, 2)", "div(b, 1)", "missing-allreduce"),
    "that add up to half of it": ("div(b, 2)", "div(b, 4)", "missing-allreduce"),
    "that are subtracted": ("div(b, 2)", "div(b, -2)", "missing-allreduce"),
    "whose gradients are not added up": ("end reduce-gradients b over tp\n", "", "other-numbers"),
    "whose gradients are averaged": ("over tp\n", "over tp by avg\n", "other-numbers"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("spelling", ["in the product", "after the product"])
def test_shares_that_add_up_to_something_else_are_refuted(name: str, spelling: str) -> None:
    plan = PLAN.replace("y = linear(a, v, b)", SPELLINGS[spelling])
    before, after, reason = WRONG[name]
    at = plan.rindex(before)
    verdict = verdict_of(plan[:at] + after + plan[at + len(before) :])
    assert verdict.outcome is Outcome.REFUTED
    assert reason in {reason.name for reason in verdict.reasons}


def test_a_number_that_a_part_is_multiplied_with_is_no_share() -> None:
    """A product is linear in the part alone: what the part is multiplied with counts as it is on each rank."""
    reference = REFERENCE.replace("y = linear(a, v, b)", "c = linear(a, v)\n  y = mul(c, b)")
    product = "share = div(b, 2)\n  c = linear(a, v)\n  part = mul(c, share)\n  y = all-reduce(part) over tp"
    assert verdict_of(PLAN.replace("y = linear(a, v, b)", product), reference).outcome is Outcome.REFUTED
