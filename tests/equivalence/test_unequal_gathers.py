"""Members of a collective give tensors of one shape, but for a gather that states the size of each."""

from __future__ import annotations

import pytest

from tests.equivalence.test_text_plans import verdict_on
from tvlint.findings import Outcome

TRAINED = """\
  t = linear(z, u)
  k: f32[] = sum(t)
  d_t = backward k (grad(k))
  _, grad(u) = backward t (d_t)
"""
DECLARED = """\
input x f32[8,8]
input z f32[8,8]
weight u f32[8,8]
loss k
output y
"""
REFERENCE = f"weight w f32[8,8] frozen\n{DECLARED}program\n  y = linear(x, w)\n{TRAINED}"


def parallel(gather: str, first: str = "0:5", last: str = "5:8") -> str:
    """Return rows of a weight that two ranks share unequally, and gather what they give."""
    rows = f"  h = linear(x, w)\n  y: f32[8,8] = {gather} over tp\n{TRAINED}"
    return (
        f"mesh tp=2\nweight w f32[5,8] frozen region [{first},0:8] of w[8,8]\n{DECLARED}program tp=0\n{rows}"
        f"program tp=1\n  weight w f32[3,8] frozen region [{last},0:8] of w[8,8]\n{rows}"
    )


@pytest.mark.parametrize(
    ("plan", "outcome", "reasons"),
    [
        (parallel("all-gather(h, dim=1, splits=[5,3])"), Outcome.PROVED, set()),
        (parallel("all-gather(h, dim=1)"), Outcome.UNKNOWN, {"unequal-splits"}),
        (parallel("all-gather(h, dim=1, splits=[3,5])"), Outcome.UNKNOWN, {"unequal-splits"}),
        (parallel("all-gather(h, dim=1, splits=[4,4])"), Outcome.UNKNOWN, {"unequal-splits"}),
        (parallel("all-gather(h, dim=1, splits=[5,3])", last="4:7"), Outcome.REFUTED, {"gathers-wrong-pieces"}),
        (parallel("all-gather(h, dim=1, splits=[5,3])", "3:8", "0:3"), Outcome.REFUTED, {"pieces-not-in-rank-order"}),
    ],
    ids=["stated", "not stated", "stated the other way", "stated equal", "overlapping", "the other way round"],
)
def test_a_gather_of_unequal_pieces_states_their_sizes(plan: str, outcome: Outcome, reasons: set[str]) -> None:
    verdict = verdict_on(plan, REFERENCE)
    assert verdict.outcome is outcome
    assert reasons <= {reason.name for reason in verdict.reasons}
