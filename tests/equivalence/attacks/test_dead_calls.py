"""Calls that no framework runs on the shapes that ranks really have, in places where nothing uses what they make."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.equivalence.models.test_attention import plans
from tests.equivalence.references import ONE_LAYER
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

REFERENCE = """
weight w f32[8,8]
input x f32[8,8]
input c f32[8,8]
input d f32[8,8]
loss l
program
  y = linear(x, w)
  e = mul(c, 1.0)
  f = mul(d, 1.0)
  g = gelu(y)
  l = sum(g)
  dg = backward l (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
"""


def with_call(call: str) -> str:
    text = REFERENCE.replace("c f32[8,8]", "c f32[8,8] tp:S(1)").replace("d f32[8,8]", "d f32[8,8] tp:S(0)")
    return "mesh tp=2" + text.replace("  g = ", f"  {call}\n  g = ")


FAILS = (
    "q = add(y, e)",
    "q = add(e, f)",
    "q = linear(e, w)",
    "q = matmul(e, e)",
    "q = cat([e, f], dim=0)",
    "q = masked_fill(y, e, 0.0)",
    "q: f32[3,3] = add(y, y)",
    "q = my_metric(nothing)",
    "q = reduce-scatter(e, dim=7) over tp",
    "q = all-gather(e, dim=1, splits=[3,5]) over tp",
    "dq = backward (e) of q = gelu(y)",
    "q = mul(y, 3.0)\n  r = view(q, [3, 3])",
    "q = mul(y, 3.0)\n  r = all-gather(q, dim=5) over tp",
    "q = mul(y, 3.0)\n  r = add(q, e)",
    "q: f32[8,4], r: f32[8,4] = all-reduce(e, nothing) over tp",
    "q: f32[8,4], r: f32[8,4] = broadcast(e, e) over tp",
    "q: f32[8,4], r: f32[8,4] = reduce(e, e, root=7) over tp",
    "q = reduce max(root=0) over tp",
    "q: f32[8,4] = my_metric(e)\n  r = reduce(q, root=7) over tp",
)


@pytest.mark.parametrize("call", FAILS)
def test_a_call_on_shapes_that_do_not_fit_is_not_proved(call: str) -> None:
    verdict = verdict_on(with_call(call), REFERENCE)
    assert verdict.outcome is not Outcome.PROVED
    assert verdict.reasons


RUNS = (
    "q = identity(e)",
    "q = matmul(f, e)",
    "q = linear(e, e)",
    "q = softmax(e, dim=1)",
    "q = all-reduce(e) over tp",
    "q: f32[8,4], r: f32[8,4] = all-reduce(e, e) over tp",
    "q: f32[8,8] = all-gather(e, dim=1, splits=[4,4]) over tp",
    "barrier() over tp",
    "q = all-to-all(e, dim=1, concat-dim=0) over tp",
    "q = sum(e)\n  r = gelu(q)",
)


@pytest.mark.parametrize("call", RUNS)
def test_a_call_that_runs_on_slices_is_left_alone_where_nothing_uses_it(call: str) -> None:
    assert verdict_on(with_call(call), REFERENCE).outcome is Outcome.PROVED
    assert compare(*plans(REFERENCE, with_call(call))).outcome == "equal"


GATHERED_AGAIN = """
mesh dp=2
weight w f32[8,8] dp:S(0)
input x f32[8,8] dp:S(0)
loss l
program
  f = all-gather(w, dim=0) over dp
  y = linear(x, f)
  g = gelu(y)
  l0 = sum(g)
  l = all-reduce(l0) over dp
  dg = backward l0 (grad(l))
  dy = backward g (dg)
  GIVEN, df = backward y (dy)
  grad(w) = reduce-scatter(df, dim=0) over dp
"""


@pytest.mark.parametrize(("name", "proved"), [("_", True), ("dx", True), ("other", False)])
def test_a_gradient_of_another_shape_is_not_added_to_one_that_was_used_before(name: str, proved: bool) -> None:
    text = GATHERED_AGAIN.replace("GIVEN", name).replace("loss l", "loss l\ngradient other f32[8,8]")
    assert (verdict_on(text, ONE_LAYER).outcome is Outcome.PROVED) == proved


@pytest.mark.parametrize(("ranks", "proved"), [("ranks 0,1", True), ("ranks 0", False)])
def test_a_barrier_is_followed_where_all_come_to_it(ranks: str, proved: bool) -> None:
    text = with_call(f"barrier() over {ranks}")
    assert (verdict_on(text, REFERENCE).outcome is Outcome.PROVED) == proved


def test_a_barrier_to_which_one_rank_does_not_come_is_not_proved() -> None:
    head, body = with_call("barrier() over tp").split("program\n")
    text = f"{head}program tp=0\n{body}program tp=1\n{body.replace('  barrier() over tp', '')}"
    assert verdict_on(text, REFERENCE).outcome is not Outcome.PROVED
