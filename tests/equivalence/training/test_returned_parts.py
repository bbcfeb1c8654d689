"""What a rank returns of a mean or a sum over the batch, also beside what is the same for all parts of it."""

from __future__ import annotations

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

REFERENCE = """weight w f32[8,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  m = mean(h)
  s = sum(w)
  l = add(m, s)
  dm, ds = backward l (grad(l))
  grad(w) = backward s (ds)
  dh = backward m (dm)
  _, grad(w) = backward h (dh)
"""
PLAN = "mesh dp=2\nreplicate dp\n" + REFERENCE.replace("x f32[8,8]", "x f32[4,8]").replace("program", "program ranks 0")
PLAN += "  reduce-gradients w over dp by avg\n"


def test_a_mean_of_a_part_beside_a_penalty_is_what_a_replica_returns() -> None:
    verdict = verdict_on(PLAN, REFERENCE)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


WRONG = {
    "a sum beside it": (("mean(h)", "sum(h)"), ("mean(h)", "sum(h)")),
    "a penalty that replicas add up": (("l = add(m, s)", "t = all-reduce(s) over dp\n  l = add(m, t)"), ("", "")),
    "a mean that is doubled": (("l = add(m, s)", "d = add(m, m)\n  l = add(d, s)"), ("", "")),
}


@pytest.mark.parametrize("name", WRONG)
def test_of_a_sum_or_of_a_multiple_it_is_not(name: str) -> None:
    ours, theirs = WRONG[name]
    verdict = verdict_on(PLAN.replace(*ours), REFERENCE.replace(*theirs) if theirs[0] else REFERENCE)
    assert verdict.outcome is not Outcome.PROVED
    assert {"scaled-output", "other-output"} & {reason.name for reason in verdict.reasons}


BESIDE = """weight w f32[8,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  q = pow(h, 2)
  m: f32[] = mean(q)
  k = abs(h)
  s: f32[] = sum(k)
  d: f32[] = div(s, 8)
  l: f32[] = add(m, d)
"""
BESIDE_OF_RANK = (
    "mesh dp=2\n"
    + BESIDE.replace("x f32[8,8]", "x f32[8,8] dp:S(0)").replace("div(s, 8)", "div(s, 4)")
    + "end reduce-gradients w over dp by avg\n"
)
RETURNED = {
    "declared": ("loss l", "loss l f32[] dp:P(avg)"),
    "averaged by the plan": ("loss l\n", "loss r\n", "r: f32[] = all-reduce avg(l) over dp || none\n"),
}


def _beside(spelling: str, before: str = "", after: str = "") -> str:
    old, new, *lines = RETURNED[spelling]
    text = BESIDE_OF_RANK.replace(before, after) if before else BESIDE_OF_RANK
    return text.replace("end reduce", "".join(lines) + "end reduce", 1).replace(old, new)


@pytest.mark.parametrize("spelling", RETURNED)
def test_a_mean_beside_a_sum_over_the_size_of_the_batch_is_averaged(spelling: str) -> None:
    verdict = verdict_on(with_backward(_beside(spelling)), with_backward(BESIDE))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize("spelling", RETURNED)
@pytest.mark.parametrize(
    ("before", "after"), [("div(s, 4)", "div(s, 8)"), ("div(s, 4)", "div(s, 2)"), ("add(m, d)", "sub(m, d)")]
)
def test_with_another_share_it_is_not(spelling: str, before: str, after: str) -> None:
    verdict = verdict_on(with_backward(_beside(spelling, before, after)), with_backward(BESIDE))
    assert verdict.outcome is not Outcome.PROVED


@pytest.mark.parametrize(
    "wrong", ["all-reduce(l) over dp", "all-reduce max(l) over dp", "mul(l, 0.5)", "all-reduce avg(m) over dp"]
)
def test_returned_otherwise_than_averaged_it_is_not(wrong: str) -> None:
    text = _beside("averaged by the plan").replace("all-reduce avg(l) over dp", wrong)
    assert verdict_on(with_backward(text), with_backward(BESIDE)).outcome is not Outcome.PROVED


ADDED = """weight w f32[8,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  k = abs(h)
  l = sum(k)
"""
ADDED_OF_RANK = "mesh dp=2\n" + ADDED.replace("x f32[8,8]", "x f32[8,8] dp:S(0)") + "end reduce-gradients w over dp\n"
OF_EACH_RANK = ADDED_OF_RANK.replace("program", "program dp=0") + ADDED_OF_RANK[ADDED_OF_RANK.index("program") :].replace(
    "program", "program dp=1"
)


@pytest.mark.parametrize("text", [ADDED_OF_RANK, OF_EACH_RANK], ids=["folded", "each rank"])
def test_a_sum_over_its_own_samples_of_which_nothing_is_declared_is_left_open(text: str) -> None:
    verdict = verdict_on(with_backward(text), with_backward(ADDED))
    assert verdict.outcome is Outcome.UNKNOWN
    assert [(reason.name, reason.repair) for reason in verdict.reasons] == [("own-part-returned", REPAIR)]
    declared = text.replace("loss l", "loss l f32[] dp:P")
    assert verdict_on(with_backward(declared), with_backward(ADDED)).outcome is Outcome.PROVED


REPAIR = "if the ranks are to return parts of `l`, declare it `dp:P`"
NO_OWN_SAMPLES = {
    "half of it": (ADDED_OF_RANK.replace("l = sum(k)", "j = mul(k, 0.5)\n  l = sum(j)"), ADDED),
    "the other half again": (OF_EACH_RANK.replace("l = sum(k)", "j = mul(k, 2)\n  l = sum(j)", 1), ADDED),
    "parts of a contraction": (
        ADDED_OF_RANK.replace("abs(h)", "identity(h)").replace("f32[8,8] dp:S(0)", "f32[8,8] tp:S(1)").replace("dp", "tp")
        .replace("w f32[8,8]", "w f32[8,8] tp:S(1)").replace("end reduce-gradients w over tp\n", ""),
        ADDED.replace("abs(h)", "identity(h)"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_OWN_SAMPLES)
def test_a_part_that_is_no_sum_over_its_own_samples_is_refuted(name: str) -> None:
    text, reference = NO_OWN_SAMPLES[name]
    verdict = verdict_on(with_backward(text), with_backward(reference))
    assert verdict.outcome is Outcome.REFUTED, [reason.message for reason in verdict.reasons]
