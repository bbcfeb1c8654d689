"""Verdicts on convolutions whose channels, each a group of its own, lie on several ranks."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.equivalence.test_attention import plans
from tests.equivalence.test_text_plans import verdict_on
from tvlint.findings import Outcome

ALONE = """
weight v f32[4,1,2]
weight b f32[4]
input x f32[2,4,3]
loss l
program
  t = tanh(x)
  h: f32[2,4,2] = torch.conv1d(t, v, bias=b, groups=4)
  q = gelu(h)
  l: f32[] = sum(q)
  dq = backward l (grad(l))
  dh = backward q (dq)
  _, grad(v), grad(b) = backward h (dh)
"""


def split(ranks: int, own: int, weight: str = "tp:S(0)") -> str:
    """The plan with a part of the channels on each of `ranks`, in `own` groups there."""
    text = (
        ALONE.replace("[4,1,2]", f"[4,1,2] {weight}")
        .replace("b f32[4]", "b f32[4] tp:S(0)")
        .replace("[2,4,3]", "[2,4,3] tp:S(1)")
    )
    text = text.replace("groups=4", f"groups={own}").replace("h: f32[2,4,2]", f"h: f32[2,{4 // ranks},2]")
    return f"mesh tp={ranks}" + text.replace(
        "l: f32[] = sum(q)", "s: f32[] = sum(q)\n  l: f32[] = all-reduce(s) over tp"
    ).replace("backward l (", "backward s (")


@pytest.mark.parametrize(("ranks", "own"), [(2, 2), (4, 1)])
def test_a_rank_states_the_groups_of_its_own_channels(ranks: int, own: int) -> None:
    verdict = verdict_on(split(ranks, own), ALONE)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert compare(*plans(ALONE, split(ranks, own))).outcome == "equal"


@pytest.mark.parametrize(("ranks", "own"), [(2, 4), (2, 1), (4, 2), (4, 4)])
def test_other_groups_than_those_of_its_own_channels_are_not_taken(ranks: int, own: int) -> None:
    """A call that fails on what the rank has is no call on all channels, though that call would have a meaning."""
    verdict = verdict_on(split(ranks, own), ALONE)
    assert verdict.outcome is not Outcome.PROVED
    assert any("conv1d" in reason.message and f"in {own} groups" in reason.message for reason in verdict.reasons)


def test_channels_of_another_part_of_the_weight_are_not_taken() -> None:
    """Every rank has the weight of the first channels."""
    text = (
        split(2, 2, "")
        .replace("  h:", "  k: f32[2,1,2] = torch.narrow(v, 0, 0, 2)\n  h:")
        .replace("(t, v, bias", "(t, k, bias")
    )
    text = text.replace("_, grad(v)", "_, dk") + "  grad(v) = backward k (dk)\n"
    verdict = verdict_on(text, ALONE)
    assert verdict.outcome is Outcome.REFUTED
    assert any("the gradient of `v` on every rank is another one" in reason.message for reason in verdict.reasons)
