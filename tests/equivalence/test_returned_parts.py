"""What a replica returns of a mean over the batch, beside what is the same for all parts of it."""

from __future__ import annotations

import pytest

from tests.equivalence.test_text_plans import verdict_on
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
