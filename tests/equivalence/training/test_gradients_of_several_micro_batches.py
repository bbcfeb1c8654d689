"""Gradients of several micro-batches: reduced in each of them, or put together, divided and clipped once at the end."""

from __future__ import annotations

import pytest

from tests.builders.numbers import on_numbers_of
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.equivalence.verdict.numbers.outcome import Agreement, Difference
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

REFERENCE = """
weight w f32[8,8]
weight v f32[8,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  a = gelu(h)
  y = linear(a, v)
  s = pow(y, 2)
  l: f32[] = {reduction}(s)
  ds = backward l (grad(l))
  dy = backward s (ds)
  da, grad(v) = backward y (dy)
  dh = backward a (da)
  _, grad(w) = backward h (dh)
{after}  update w, v
"""

SHARDED = """
mesh dp=2
micro-batches 2
weight w f32[8,8] dp:S(0)
weight v f32[8,8] dp:S(0)
input x f32[4,8] dp:S(0)
loss l f32[] dp:P(avg)
segment step backward (x) -> (l)
  fw: f32[8,8] = all-gather(w, dim=0) over dp
  h = linear(x, fw)
  a = gelu(h)
  fv: f32[8,8] = all-gather(v, dim=0) over dp
  y = linear(a, fv)
  s = pow(y, 2)
  l: f32[] = mean(s)
  ls = div(l, 2)
  dl = backward ls (grad(ls))
  ds = backward l (dl)
  dy = backward s (ds)
  da, gv = backward y (dy)
  dh = backward a (da)
  _, gw = backward h (dh)
  grad(v): f32[4,8] = reduce-scatter avg(gv, dim=0) over dp
  grad(w): f32[4,8] = reduce-scatter avg(gw, dim=0) over dp
program
  run step micro-batch 0-1
  update w, v
"""

REPLICATED = """
mesh dp=2
micro-batches 2
weight w f32[8,8]
weight v f32[8,8]
input x f32[4,8] dp:S(0)
loss l f32[] dp:P
program
{micro_batches}{after}  update w, v
"""

MICRO_BATCH = """  micro-batch {number}
  h = linear(x, w)
  a = gelu(h)
  y = linear(a, v)
  s = pow(y, 2)
  l: f32[] = sum(s)
  ds = backward l (grad(l))
  dy = backward s (ds)
  da, grad(v) = backward y (dy)
  dh = backward a (da)
  _, grad(w) = backward h (dh)
"""

REDUCE = "  reduce-gradients w, v over dp\n"
DIVIDE = "  grad(w) = div(grad(w), 64)\n  grad(v) = div(grad(v), 64)\n"
CLIP = """  qw = pow(grad(w), 2)
  nw: f32[] = sum(qw)
  qv = pow(grad(v), 2)
  nv: f32[] = sum(qv)
  n = add(nw, nv)
  r = rsqrt(n)
  c = clamp(r, max=1e-06)
  grad(w) = mul(grad(w), c)
  grad(v) = mul(grad(v), c)
"""


def replicated(after: str) -> str:
    return REPLICATED.format(micro_batches="".join(MICRO_BATCH.format(number=i) for i in range(2)), after=after)


MEAN = REFERENCE.format(reduction="mean", after="")
SUM = REFERENCE.format(reduction="sum", after="")
PAIRS = {
    "sharded": (SHARDED, MEAN),
    "divided after the reducer": (replicated(REDUCE + DIVIDE), REFERENCE.format(reduction="sum", after=DIVIDE)),
    "divided before the reducer": (replicated(DIVIDE + REDUCE), REFERENCE.format(reduction="sum", after=DIVIDE)),
    "divided and reduced by an operator": (
        replicated(DIVIDE + "  grad(w) = all-reduce(grad(w)) over dp\n  grad(v) = all-reduce(grad(v)) over dp\n"),
        REFERENCE.format(reduction="sum", after=DIVIDE),
    ),
    "clipped": (replicated(REDUCE + CLIP), REFERENCE.format(reduction="sum", after=CLIP)),
}

WRONG = [
    ("sharded", "ls = div(l, 2)", "ls = div(l, 4)"),
    ("sharded", "reduce-scatter avg(gv, dim=0)", "reduce-scatter(gv, dim=0)"),
    ("divided after the reducer", "grad(v) = div(grad(v), 64)", "grad(v) = div(grad(v), 32)"),
    ("divided before the reducer", "  grad(v) = div(grad(v), 64)\n", ""),
    ("clipped", "grad(v) = mul(grad(v), c)", "grad(v) = mul(grad(v), r)"),
    ("clipped", REDUCE, "  reduce-gradients w, v over dp by avg\n"),
]


@pytest.mark.parametrize("name", PAIRS)
def test_right_gradients_are_proved(name: str) -> None:
    parallel, reference = PAIRS[name]
    verdict = verdict_on(parallel, reference)
    assert verdict.outcome is Outcome.PROVED, [(reason.name, reason.message) for reason in verdict.reasons]
    assert isinstance(on_numbers_of(*plans(reference, parallel)[::-1]), Agreement)


@pytest.mark.parametrize(("name", "before", "after"), WRONG)
def test_wrong_gradients_are_refuted(name: str, before: str, after: str) -> None:
    parallel, reference = PAIRS[name]
    assert before in parallel
    wrong = parallel.replace(before, after)
    verdict = verdict_on(wrong, reference)
    assert verdict.outcome is Outcome.REFUTED, [(reason.name, reason.message) for reason in verdict.reasons]
    assert isinstance(on_numbers_of(*plans(reference, wrong)[::-1]), Difference)


def test_what_earlier_micro_batches_have_reduced_is_not_reduced_again_and_proved() -> None:
    again = SHARDED.replace("avg(gw, dim=0) over dp", "avg(gw, dim=0) over dp\n  grad(w) = all-reduce(grad(w)) over ranks 0,1")
    assert verdict_on(again, MEAN).outcome is not Outcome.PROVED
    twice = again.replace("  grad(w) = all-reduce(grad(w)) over", "  g2 = mul(grad(w), 1.0)\n  grad(w) = all-reduce(g2) over")
    assert verdict_on(twice, MEAN).outcome is not Outcome.PROVED


def test_a_division_in_every_micro_batch_divides_what_is_divided_and_is_not_proved() -> None:
    every = "".join(MICRO_BATCH.format(number=i) + DIVIDE for i in range(2))
    wrong = REPLICATED.format(micro_batches=every, after=REDUCE)
    assert verdict_on(wrong, REFERENCE.format(reduction="sum", after=DIVIDE)).outcome is not Outcome.PROVED
