"""Ranks count each addend of the gradient of a weight alike, also in plans without a step, and no backward is left out."""

from __future__ import annotations

import pytest

from tests.builders.plan_findings import findings_of_text
from tvlint.findings import Severity

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


LEFT_OUT = """weight w f32[8,8]
weight u f32[8,8]
input x f32[4,8]
input dy f32[4,8]
gradient dn f32[4,8] grad-of n
segment forth forward (x) -> (h, n, a, y)
  h = linear(x, w)
  n = tanh(h)
  a = gelu(n)
  y = linear(a, u)
segment back backward (x, h, n, a, y, dy) -> ()
  da, grad(u) = backward y (dy)
  {}
  dh = backward n (dn)
  _, grad(w) = backward h (dh)
program
  run forth micro-batch 0
  run back micro-batch 0
"""


@pytest.mark.parametrize(("back", "rules"), [("dn = backward a (da)", set()), ("", {"gradient-left-out"})])
def test_an_operator_without_a_backward_leaves_a_gradient_out(back: str, rules: set[str]) -> None:
    assert {finding.rule for finding in findings_of_text(LEFT_OUT.format(back))} == rules


WHOLE = """mesh tp=2
weight u f32[8,8]
weight w f32[16,8] tp:S(0)
weight v f32[8,16] tp:S(1)
input x f32[4,8]
input t f32[4,8]
loss l
program tp=0
{0}
program tp=1
{1}
"""
STEPS = """  e = linear(x, u)
  h = linear(e, w)
  a = gelu(h)
  p = linear(a, v)
  y = all-reduce(p) over tp
  l = mse_loss(y, t)
  one: f32[] = full([], {start})
  dy, _ = backward l (one)
  da, gv = backward p (dy)
  dh = backward a (da)
  de, gw = backward h (dh)
  ds = all-reduce(de) over tp
  _, g = backward e (ds)
  gu = div(g, {by})
  sgd(u!, gu)
  sgd(w!, gw)
  sgd(v!, gv)"""


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"start": 1.0, "by": 1}, []),
        ({"start": 2.0, "by": 1}, ["the gradient of `l` starts on rank 1 with 2, and with 1 on rank 0"]),
        (
            {"start": 1.0, "by": 2},
            ["`div` on rank 1 makes an addend of the gradient of `u` count 1/2 times as often as on rank 0"],
        ),
    ],
)
def test_another_number_on_one_rank_is_one_mistake(other: dict[str, float], said: list[str]) -> None:
    text = WHOLE.format(STEPS.format(start=1.0, by=1), STEPS.format(**other))
    assert [finding.message for finding in findings_of_text(text) if finding.severity is Severity.ERROR] == said


TWO_NAMES = """mesh dp=2
weight w f32[8,8]
state m f32[8,8]
state v f32[8,8]
input x f32[4,8] dp:S(0)
input y f32[4,8] dp:S(0)
loss l
program
  a = linear(x, w)
  b = linear(y, w)
  d = mul(a, b)
  s: f32[] = mean(d)
  l = all-reduce avg(s) over dp
  dd = backward s (grad(l))
  da, db = backward d (dd)
  _, g1 = backward a (da)
  _, g2 = backward b (db)
{}
  adam_step(w!, r, m!, v!)
"""


@pytest.mark.parametrize(
    ("back", "rules"),
    [
        ("  g = add(g1, g2)\n  r = all-reduce avg(g) over dp", set()),
        ("  r1 = all-reduce avg(g1) over dp\n  r2 = all-reduce avg(g2) over dp\n  r = add(r1, r2)", set()),
        ("  g = add(g1, g2)\n  r = identity(g)", {"partial-through-nonlinear"}),
        ("  r1 = all-reduce avg(g1) over dp\n  r = add(r1, g2)", {"missing-allreduce"}),
        ("  g = add(g1, g2)\n  r = all-reduce(g) over dp", {"wrong-gradient-scale"}),
        ("  r = all-reduce avg(g1) over dp", {"lost-gradient"}),
    ],
)
def test_gradients_of_a_weight_under_two_names_are_followed(back: str, rules: set[str]) -> None:
    found = findings_of_text(TWO_NAMES.format(back))
    assert {finding.rule for finding in found if finding.severity is Severity.ERROR} == rules
