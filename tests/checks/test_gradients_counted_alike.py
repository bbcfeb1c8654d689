"""Ranks count each addend of the gradient of a weight alike, also in plans that leave the step to the loop around them."""

from __future__ import annotations

import pytest

from tests.builders.plan_findings import findings_of_text

PLAN = """mesh tp=2
weight e f32[8,4] tp:S(1)
weight g f32[4]
input x f32[4,8]
input dz f32[4,4]
program tp=0
{0}
program tp=1
{1}
"""
RANK = """  p = matmul(x, e)
  h: f32[4,4] = all-gather(p, dim=1) over tp
  n = mul(h, g)
  z = add(h, n)
  d1, d2 = backward z (dz)
  {}
  dh = add(d1, d3)
  dp = chunk(dh, dim=1) over tp
  _, grad(e) = backward p (dp)
  {}"""
PLAIN = "d3, grad(g) = backward n (d2)"
DOUBLED = "dn = mul(d2, 2.0)\n  d3, grad(g) = backward n (dn)"
STEP = "update e, g"


@pytest.mark.parametrize("step", ["", STEP])
@pytest.mark.parametrize("scalings", [(PLAIN, PLAIN), (DOUBLED, DOUBLED)])
def test_what_all_ranks_scale_alike_is_right(scalings: tuple[str, str], step: str) -> None:
    found = findings_of_text(PLAN.format(*(RANK.format(scaling, step) for scaling in scalings)))
    assert "divergent-replicas" not in {finding.rule for finding in found}


@pytest.mark.parametrize("step", ["", STEP])
def test_an_addend_that_one_rank_doubles_is_found_in_shards_and_copies(step: str) -> None:
    found = findings_of_text(PLAN.format(RANK.format(PLAIN, step), RANK.format(DOUBLED, step)))
    assert "divergent-replicas" in {finding.rule for finding in found}
    (said,) = {finding.message for finding in found if finding.rule == "divergent-replicas"}
    assert said.startswith("`mul` on rank 1 makes an addend")
    assert said.endswith("2 times as often as on rank 0")
