"""Exported plans whose backward leaves out a gradient, or takes none, and goes on all the same."""

from __future__ import annotations

import pytest
from oracle.generate import random_pair
from oracle.mutate import mutants

from tests.builders.plan_findings import findings_of_plan, findings_of_text
from tvlint.ir.operators import Backward
from tvlint.ir.plan import Plan


def _backwards(plan: Plan) -> list[Backward]:
    return [each for segment in plan.segments.values() for each in segment.operators if isinstance(each, Backward)]


def _goes_on_without(plan: Plan) -> bool:
    """Whether a backward gives gradients and takes none."""
    return any(any(each.outputs) and not any(each.inputs) for each in _backwards(plan))


@pytest.mark.parametrize("seed", range(4))
def test_a_backward_that_takes_no_gradient_is_no_start(seed: int) -> None:
    plan = random_pair(seed).parallel
    broken = [each.plan for each in mutants(plan) if each.kind == "gradient-dropped" and _goes_on_without(each.plan)]
    assert not _goes_on_without(plan)
    assert broken
    for each in broken[:6]:
        assert "use-before-definition" in {finding.rule for finding in findings_of_plan(each)}
    assert "use-before-definition" not in {finding.rule for finding in findings_of_plan(plan)}


SPLIT = """
weight w f32[8,4]
weight v f32[4,4]
input x f32[6,4]
loss l
segment forth forward (x) -> (y, a, b, c, d, l)
  y = linear(x, w)
  a, b = split(y, 4, dim=1)
  c = linear(b, v)
  d = mul(a, c)
  l = sum(d)
segment back backward (x, y, a, b, c, d, l) -> ()
  dd = backward l (grad(l))
  da, dc = backward d (dd)
  db, grad(v) = backward c (dc)
  dy = backward a (TAKEN)
  _, grad(w) = backward y (dy)
program
  run forth micro-batch 0RENAMED
  run back micro-batch 0
  run step
segment step optimizer () -> ()
  update w, v
"""


@pytest.mark.parametrize("renamed", ["", " (x) -> (y, a, b, c, d, l)"], ids=["one name", "names of the run"])
@pytest.mark.parametrize(
    ("taken", "found"),
    [("da, db", set[str]()), ("da, _", {"`db`, the gradient of `b`"}), ("_, db", {"`da`, the gradient of `a`"})],
)
def test_a_backward_of_several_results_takes_the_gradients_of_all_that_have_one(
    taken: str, found: set[str], renamed: str
) -> None:
    told = findings_of_text(SPLIT.replace("TAKEN", taken).replace("RENAMED", renamed))
    assert {finding.message.partition(" by way of")[0] for finding in told if finding.rule == "lost-gradient"} == found
    assert {finding.rule for finding in told} == ({"lost-gradient"} if found else set())


GATED = """weight w f32[8,8]
weight gate f32[8,8]
input x f32[4,8]
loss l
program
  h = linear(x, w)
  g = linear(h, gate)
  s = sigmoid(g)
  y = mul(h, s)
  l = sum(y)
  dy = backward l (grad(l))
  dh, _ = backward y (dy)
  _, grad(w) = backward h (dh)
  update w
"""


def left_out(text: str) -> set[str]:
    return {finding.rule for finding in findings_of_text(text)} & {"gradient-left-out"}


def test_a_weight_that_learns_nothing_since_a_gradient_is_left_out_is_found() -> None:
    assert left_out(GATED) == {"gradient-left-out"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("weight gate f32[8,8]", "weight gate f32[8,8] frozen"),
        ("weight gate", "buffer gate"),
        ("  s = sigmoid(g)", "  s0 = sigmoid(g)\n  s = detach(s0)"),
        ("  s = sigmoid(g)", "  s = gt(g, 0.5)"),
        ("  s = sigmoid(g)", "  s = my_kernel(g)"),
        ("  g = linear(h, gate)", "  g = linear(x, gate)"),
        ("  update w", "  mul_(gate!, 0.9)\n  update w"),
        ("  update w\n", ""),
        ("  y = mul(h, s)", "  y = mul(h, gate)"),
        ("weight gate f32[8,8]", "weight gate f32[8,8] of w"),
    ],
)
def test_a_gradient_may_be_left_out_of_what_is_not_trained(old: str, new: str) -> None:
    assert left_out(GATED.replace(old, new)) == set()


SHARDED = """mesh dp=2
weight w f32[8,8] dp:S(0)
state m f32[8,8] dp:S(0)
input x f32[8,8] dp:S(0)
loss l
program
  f = all-gather(w, dim=0) over dp
  h = linear(x, f)
  r = add(x, h)
  q = mul(r, h)
  l = sum(q)
  dq = backward l (grad(l))
  dr, dh1 = backward q (dq)
  _, dh2 = backward r (dr)
  dh = add(dh1, dh2)
  _, df = backward h (dh)
  g = reduce-scatter(df, dim=0) over dp
{}
"""


def lost(steps: str, old: str = "", new: str = "") -> set[str]:
    found = findings_of_text(SHARDED.format(steps).replace(old, new) if old else SHARDED.format(steps))
    return {finding.rule for finding in found if finding.rule in ("lost-gradient", "gradient-left-out")}


@pytest.mark.parametrize(
    "steps", ["  s = mul(g, 0.1)\n  sub_(w!, s)", "  s = mul(g, 0.1)\n  w = sub(w, s)", "  momentum_step(w!, g, m!)"]
)
def test_a_weight_that_is_stepped_with_none_of_its_gradients_loses_them(steps: str) -> None:
    assert lost(steps) == set()
    assert lost(steps, "g = reduce-scatter(df,", "g = reduce-scatter(f,") == {"lost-gradient"}
    assert lost(steps.replace("(g, 0.1)", "(m, 0.1)").replace("!, g", "!, m")) == {"lost-gradient"}


def test_a_backward_that_takes_none_of_several_gradients_of_its_value_loses_them() -> None:
    steps = "  s = mul(g, 0.1)\n  sub_(w!, s)"
    assert lost(steps, "backward h (dh)", "backward h (dr)") == {"lost-gradient"}
    assert lost(steps, "backward h (dh)", "backward h (dh1)") == {"lost-gradient"}


@pytest.mark.parametrize(
    ("steps", "old", "new"),
    [
        ("", "", ""),
        ("  update w", "", ""),
        ("  update v", "", ""),
        ("  w = all-gather(f, dim=0) over dp", "", ""),
        ("  s = mul(m, 0.1)\n  sub_(m!, s)", "", ""),
    ],
)
def test_a_weight_that_no_step_changes_loses_no_gradient(steps: str, old: str, new: str) -> None:
    assert lost(steps, old, new) == set()


RANKS = """mesh tp=2
weight w f32[8,8]
weight u f32[8,8] tp:S(0)
input x f32[4,8]
input dy f32[4,8] tp:S(1)
program tp=0
  h = linear(x, w)
  y = linear(h, u)
  dh, grad(u) = backward y (dy)
  _, {} = backward h (dh)
{}
  update u, w
program tp=1
  h = linear(x, w)
  y = linear(h, u)
  dh, grad(u) = backward y (dy)
  _, grad(w) = backward h (dh)
  reduce-gradients w over tp
  update u, w
"""


def test_a_rank_that_steps_a_weight_asks_for_its_gradient() -> None:
    reducer = "  reduce-gradients w over tp"
    assert {finding.rule for finding in findings_of_text(RANKS.format("grad(w)", reducer))} == set()
    assert left_out(RANKS.format("_", reducer)) == {"gradient-left-out"}
    received = RANKS.format("_", reducer.replace("reduce-gradients w", "grad(w) = all-reduce(grad(w))"))
    assert left_out(received) == set()
    assert left_out(RANKS.format("_", "").replace("update u, w", "update u")) == set()


BODY = """program dp={}
  h = linear(x, w)
  a = gelu(h)
  y = mul(a, h)
  da, dh1 = backward y (dy)
  dh2 = backward a (da)
  dh = {}
  _, grad(w) = backward h (dh)
  reduce-gradients w over dp
  update w
"""


@pytest.mark.parametrize(("of_one", "found"), [("add(dh1, dh2)", False), ("identity(dh2)", True), ("identity(dh1)", True)])
def test_a_gradient_that_one_program_alone_loses_is_found(of_one: str, found: bool) -> None:
    declared = "mesh dp=2\nweight w f32[8,8]\ninput x f32[8,8] dp:S(0)\ninput dy f32[8,8] dp:S(0)\n"
    text = declared + BODY.format(0, of_one) + BODY.format(1, "add(dh1, dh2)")
    assert ("lost-gradient" in {finding.rule for finding in findings_of_text(text)}) is found


LEFT_TO_THE_CALLER = """mesh tp=2
weight w f32[16,8] tp:S(0)
weight {name} f32[16,8] tp:S(0)
input x f32[4,8]
input dh f32[4,8]
program tp=0
  h = linear(x, w)
  _, {first} = backward h (dh)
program tp=1
  k = linear(x, {name})
  _, {second} = backward k (dh)
"""


@pytest.mark.parametrize(
    ("name", "first", "second", "rules"),
    [
        ("w", "grad(w)", "grad(w)", set()),
        ("w", "grad(w)", "_", {"gradient-left-out"}),
        ("w", "_", "_", set()),
        ("frozen v", "grad(w)", "_", set()),
    ],
)
def test_ranks_leave_gradients_of_all_shards_to_the_caller(name: str, first: str, second: str, rules: set[str]) -> None:
    declared = LEFT_TO_THE_CALLER.replace("weight {name}", "weight v" if "v" in name else "")
    text = declared.format(name=name.removeprefix("frozen "), first=first, second=second)
    assert left_out("\n".join(line for line in text.splitlines() if not line.startswith(" f32"))) == rules


SHARED_INPUT = """mesh tp=2
micro-batches 2
weight q f32[8,8] tp:S(0)
weight k f32[8,8] tp:S(0)
input x f32[4,8]
input x1 f32[4,8]
gradient dh f32[4,8] grad-of h
segment forth forward (x) -> (l)
  h = identity(x)
  a = linear(h, q)
  b = linear(h, k)
  c = mul(a, b)
  l: f32[] = sum(c)
segment back backward mirror forth (dl) -> (dx)
  dc = backward l (dl)
  da, db = backward c (dc)
  {first}, grad(q) = backward a (da)
  {second}, grad(k) = backward b (db)
  dx = all-reduce(dh) over tp
program
  run forth micro-batch 0 (x) -> (l)
  run back micro-batch 0 (dl) -> (dx)
  run forth micro-batch 1 (x1) -> (l1)
  run back micro-batch 1 (dl1) -> (dx1)
"""


@pytest.mark.parametrize(
    ("first", "second", "is_found"), [("dh", "dh", False), ("_", "dh", True), ("dh", "_", True), ("_", "_", False)]
)
def test_a_gradient_that_is_left_out_of_a_sum_over_ranks_is_found(first: str, second: str, is_found: bool) -> None:
    found = left_out(SHARED_INPUT.format(first=first, second=second))
    assert found == ({"gradient-left-out"} if is_found else set())
