"""A constant of the forward pass that the way back leaves out is found, and is right where a gradient is multiplied with it."""

from __future__ import annotations

import pytest

from tests.builders.plan_findings import findings_of_text
from tvlint.findings import Severity

HALVES = """mesh dp=2 tp=2
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input x f32[4,8] dp:S(0)
loss l f32[]
program
  h = linear(x, w1)
  a = gelu(h)
  p = linear(a, w2)
  y = all-reduce(p) over tp
  b = mul(y, 0.5)
  r = add(x, b)
  q = pow(r, 2)
  s: f32[] = sum(q)
  l = all-reduce(s) over dp
  dq = backward s (grad(l))
  dr = backward q (dq)
  _, db = backward r (dr)
{}
  dh = backward a (da)
  _, grad(w1) = backward h (dh)
  reduce-gradients w1, w2 over dp{}
  update w1, w2
"""
SCORES = """weight wq f32[8,8]
weight wk f32[8,8]
input x f32[4,8]
loss l f32[]
program
  q = linear(x, wq)
  k = linear(x, wk)
  t = transpose(k, 0, 1)
  s = matmul(q, t)
  c = mul(s, 0.125)
  e = pow(c, 2)
  l: f32[] = sum(e)
  de = backward l (grad(l))
  dc = backward e (de)
{}
  _, grad(wq) = backward q (dq)
  _, grad(wk) = backward k (dk)
  update wq, wk
"""
DIFFERENCE = """weight w f32[8,8]
weight v f32[8,8]
input x f32[4,8]
loss l f32[]
program
  a = linear(x, w)
  b = linear(x, v)
  d = sub(a, b)
  e = pow(d, 2)
  l: f32[] = sum(e)
  de = backward l (grad(l))
  dd = backward e (de)
{}
  _, grad(w) = backward a (da)
  _, grad(v) = backward b (db)
  update w, v
"""
RIGHT = {
    "by its backward": HALVES.format("  dy = backward b (db)\n  da, grad(w2) = backward p (dy)", ""),
    "by hand": HALVES.format("  dy = mul(db, 0.5)\n  da, grad(w2) = backward p (dy)", ""),
    "by the reducer": HALVES.format("  da, grad(w2) = backward p (db)", " divide 2"),
    "by an average": HALVES.format("  da, grad(w2) = backward p (db)", " by avg"),
    "as kernels do": SCORES.format(
        "  q0, dt = backward s (dc)\n  dq = mul(q0, 0.125)\n  k0 = backward t (dt)\n  dk = div(k0, 8)"
    ),
    "of a difference": DIFFERENCE.format("  da, db = backward d (dd)"),
    "of the first of a difference": DIFFERENCE.format("  da, db = backward d (dd)").replace("a (da)", "a (dd)"),
    "negated": DIFFERENCE.format("  da = mul(dd, 1.0)\n  db = mul(dd, -1.0)"),
    "of two halves": """weight w f32[8,8]
input x f32[4,8]
loss l f32[]
program
  a = linear(x, w)
  b = mul(a, 0.5)
  c = div(a, 2)
  y = add(b, c)
  l: f32[] = sum(y)
  dy = backward l (grad(l))
  _, grad(w) = backward a (dy)
  update w
""",
    "of one element": """weight w f32[8,8]
input x f32[4,8]
loss l f32[]
program
  y = linear(x, w)
  m: f32[] = mean(y)
  h = mul(m, 0.5)
  l = add(h, m)
  dh, dm = backward l (grad(l))
  dy = backward m (dh)
  _, grad(w) = backward y (dy)
  update w
""",
}
WRONG = {
    "of a branch": HALVES.format("  da, grad(w2) = backward p (db)", ""),
    "behind a sum": HALVES.format("  da, grad(w2) = backward p (dr)", ""),
    "though it is there": HALVES.format("  dy = backward b (db)\n  da, grad(w2) = backward p (db)", ""),
    "of scores": SCORES.format("  dq, dt = backward s (dc)\n  dk = backward t (dt)"),
    "the sign": DIFFERENCE.format("  da, db = backward d (dd)").replace("b (db)", "b (dd)"),
}


def spoken(text: str) -> set[str]:
    return {finding.rule for finding in findings_of_text(text) if finding.severity is Severity.ERROR}


@pytest.mark.parametrize("way", RIGHT)
def test_a_constant_may_be_applied_anywhere_on_the_way(way: str) -> None:
    assert "gradient-of-another-tensor" not in spoken(RIGHT[way])


@pytest.mark.parametrize("way", WRONG)
def test_a_constant_that_is_left_out_is_found(way: str) -> None:
    assert "gradient-of-another-tensor" in spoken(WRONG[way])


def test_it_is_said_what_is_left_out() -> None:
    (found,) = [each for each in findings_of_text(WRONG["of a branch"]) if each.severity is Severity.ERROR]
    assert found.message == "the backward of `p` starts with `db`, the gradient of `b`, which is 0.5 times `p`"
    assert found.location.line == 19
