"""Plans that compute the right numbers, and state something of their gradients and sums that is not so."""

from __future__ import annotations

import pytest

from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

REFERENCE = """
weight w f32[8,8]
weight v f32[8,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  a = gelu(h)
  p = linear(a, v)
  z = gelu(p)
  l: f32[] = sum(z)
  k: f32[] = sum(h)
  dz = backward l (grad(l))
  dp = backward z (dz)
  da, grad(v) = backward p (dp)
  dh = backward a (da)
  dh = backward k (grad(k))
  _, grad(w) = backward h (dh)
"""
PARALLEL = (
    REFERENCE.replace("weight w f32[8,8]", "mesh tp=2\nweight w f32[8,8] tp:S(0)")
    .replace("weight v f32[8,8]", "weight v f32[8,8] tp:S(1)")
    .replace("  z = gelu(p)", "  y = all-reduce(p) over tp\n  z = gelu(y)")
    .replace("dp = backward z (dz)", "dy = backward z (dz)")
    .replace("backward p (dp)", "backward p (dy)")
)


@pytest.mark.parametrize(
    ("plan", "before", "after", "reason"),
    [
        (REFERENCE, "  k: f32[] = sum(h)", "  k: f32[] = sum(x)", "swapped-gradients"),
        (PARALLEL, "loss l", "loss l\ntensor a f32[8,4] gradient dq", "other-gradient-declared"),
        (PARALLEL, "  p = ", "  p: f32[8,8] part 0/3 = ", "wrong-placement-claim"),
    ],
    ids=["a root of another value of equal gradient", "a gradient that nothing makes", "a third of two halves"],
)
def test_what_is_stated_otherwise_is_not_proved(plan: str, before: str, after: str, reason: str) -> None:
    assert verdict_on(plan, REFERENCE).outcome is Outcome.PROVED
    assert before in plan
    verdict = verdict_on(plan.replace(before, after), REFERENCE)
    assert verdict.outcome is Outcome.UNKNOWN
    assert reason in {own.name for own in verdict.reasons}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  p = ", "  p: f32[8,8] part 1/2 = "),
        ("loss l", "loss l\ntensor a f32[8,4] gradient da"),
        ("  k: ", "  n = clamp(w, max=1.0)\n  k: "),
    ],
    ids=["a half of two", "the gradient that it gets", "a value that nothing reads"],
)
def test_what_is_stated_rightly_takes_nothing_from_a_proof(before: str, after: str) -> None:
    assert before in PARALLEL
    verdict = verdict_on(PARALLEL.replace(before, after), REFERENCE)
    assert verdict.outcome is Outcome.PROVED, [own.message for own in verdict.reasons]
