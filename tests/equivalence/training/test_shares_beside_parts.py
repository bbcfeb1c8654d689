"""Shares of a bias that ranks add to their parts of a sum, or one rank alone: the shares must add up to the bias."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import in_use
from tvlint.equivalence.verdict.numbers.outcome import Agreement
from tvlint.equivalence.verdict.prove import Verdict, prove
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

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
    "of which each rank adds the whole": ("div(b, 2)", "div(b, 1)", "unequal-addends"),
    "that add up to half of it": ("div(b, 2)", "div(b, 4)", "unequal-addends"),
    "that are subtracted": ("div(b, 2)", "div(b, -2)", "unequal-addends"),
    "whose gradients are not added up": ("end reduce-gradients b over tp\n", "", "wrong-gradient-scale"),
    "whose gradients are averaged": ("over tp\n", "over tp by avg\n", "wrong-gradient-scale"),
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
    shares = [reason.message for reason in verdict.reasons if reason.name == "unequal-addends"]
    assert all("the shares of `b` in it add up to" in message for message in shares)


def on_ranks(*spellings: str) -> str:
    """Return the plan whose ranks each make `y` in their own way."""
    head, _, body = SPLIT.partition("program\n")
    size = len(spellings)
    programs = (f"program tp={rank}\n" + body.replace("y = linear(a, v, b)", text) for rank, text in enumerate(spellings))
    return f"mesh tp={size}\n{head}" + "".join(programs)


WITHOUT = "part = linear(a, v)\n  y = all-reduce(part) over tp"
WITH = "part = linear(a, v, b)\n  y = all-reduce(part) over tp"
ON_ONE_RANK = {
    "in the product of the first": (WITH, WITHOUT),
    "in the product of the last": (WITHOUT, WITH),
    "after the product": (WITHOUT, WITHOUT, "c = linear(a, v)\n  part = add(b, c)\n  y = all-reduce(part) over tp", WITHOUT),
}


@pytest.mark.parametrize("reference", [REFERENCE, ADDED], ids=["linear", "add"])
@pytest.mark.parametrize("name", ON_ONE_RANK)
def test_a_bias_that_one_rank_adds_is_added_once(name: str, reference: str) -> None:
    plan = on_ranks(*ON_ONE_RANK[name])
    verdict = verdict_of(plan, reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    parallel, single = plans(with_backward(plan), with_backward(reference))
    assert compare(in_use(single), in_use(parallel)).outcome == "equal"


WRONG_ON_ONE_RANK = {
    "on both ranks": (WITH, WITH),
    "on two of four": (WITH, WITHOUT, WITHOUT, WITH),
    "half of it": (WITHOUT, "share = div(b, 2)\n  part = linear(a, v, share)\n  y = all-reduce(part) over tp"),
    "on none": (WITHOUT, WITHOUT),
    "before an average": (WITH.replace("reduce(", "reduce avg("), WITHOUT.replace("reduce(", "reduce avg(")),
    "after it is squared": (WITHOUT, "share = mul(b, b)\n  part = linear(a, v, share)\n  y = all-reduce(part) over tp"),
}


@pytest.mark.parametrize("name", WRONG_ON_ONE_RANK)
def test_a_bias_that_one_rank_does_not_add_once_is_refuted(name: str) -> None:
    plan = on_ranks(*WRONG_ON_ONE_RANK[name])
    parallel, single = plans(with_backward(plan), with_backward(REFERENCE))
    assert compare(in_use(single), in_use(parallel)).outcome == "different"
    assert verdict_of(plan).outcome is Outcome.REFUTED


def test_shares_of_what_the_reference_halves_add_up_to_half() -> None:
    reference = REFERENCE.replace("y = linear(a, v, b)", "half = div(b, 2)\n  y = linear(a, v, half)")
    share = "share = div(b, 4)\n  part = linear(a, v, share)\n  y = all-reduce(part) over tp"
    plan = PLAN.replace("y = linear(a, v, b)", share)
    assert verdict_of(plan, reference).outcome is Outcome.PROVED


def test_a_number_that_a_part_is_multiplied_with_is_no_share() -> None:
    """A product is linear in the part alone: what the part is multiplied with counts as it is on each rank."""
    reference = REFERENCE.replace("y = linear(a, v, b)", "c = linear(a, v)\n  y = mul(c, b)")
    product = "share = div(b, 2)\n  c = linear(a, v)\n  part = mul(c, share)\n  y = all-reduce(part) over tp"
    assert verdict_of(PLAN.replace("y = linear(a, v, b)", product), reference).outcome is Outcome.REFUTED


ALONE = """buffer u f32[4,8]
buffer b f32[6,4]
input t f32[6,8]
output y f32[6,4]
program
  c = linear(t, u)
  y = FUNCTION(c, b)
"""
COPIES = """mesh tp=2 r=2
buffer u f32[4,8] tp:S(1)
buffer b f32[6,4]
input t f32[6,8] tp:S(1)
output y f32[6,4]
program r=0
  c = linear(t, u)
  h = mul(c, 0.5)
  q = mul(b, 0.25)
  part = ONE
  y = all-reduce(part) over tp,r
program r=1
  c = linear(t, u)
  h = mul(c, 0.5)
  q = mul(b, 0.25)
  part = OTHER
  y = all-reduce(part) over tp,r
"""


@pytest.mark.parametrize(
    ("one", "other", "function", "is_right"),
    [
        ("add(h, q)", "add(h, q)", "add", True),
        ("sub(h, q)", "sub(h, q)", "sub", True),
        ("add(h, q)", "sub(h, q)", "add", False),
        ("sub(h, q)", "add(h, q)", "sub", False),
        ("add(h, q)", "add(h, q, alpha=2)", "add", False),
        ("sub(c, q)", "clone(q)", "sub", False),
        ("add(c, q)", "clone(q)", "add", True),
        ("add(c, q, alpha=2)", "clone(q)", "add", False),
    ],
)
def test_what_ranks_add_up_is_the_function_that_all_of_them_apply(one: str, other: str, function: str, is_right: bool) -> None:
    """A difference gives its second operand with another sign, and what some add others may subtract."""
    plan = COPIES.replace("ONE", one).replace("OTHER", other)
    parallel, reference = plans(plan, ALONE.replace("FUNCTION", function))
    assert (prove(parallel, reference).outcome is Outcome.PROVED) is is_right
    assert (on_numbers_of(parallel, reference) == Agreement()) is is_right
