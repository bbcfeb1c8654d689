"""Operators of one name in two segments: a gradient belongs to the one that it says, not to the one that ran last."""

from __future__ import annotations

from dataclasses import replace

from tests.builders.used_plans import in_use
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome, Verdict
from tvlint.ir.operators import Backward, Compute
from tvlint.ir.plan import Plan, Segment
from tvlint.readers.plan_text.reader import read

REFERENCE = """
weight w f32[4,4]
input x f32[4,4]
loss l
program
  r = relu(x)
  y1 = gelu(r)
  h = linear(y1, w)
  y2 = gelu(h)
  l = sum(y2)
  d = backward l (grad(l))
  g = backward y2 (d)
  _, grad(w) = backward h (g)
"""

PARALLEL = """
weight w f32[4,4]
input x f32[4,4]
loss l
segment before forward (x) -> (r)
  r: f32[4,4] = relu(x)
segment a forward (xa) -> (y)
  y: f32[4,4] = gelu(xa)
segment middle forward (y1) -> (h)
  h: f32[4,4] = linear(y1, w)
segment b forward (xb) -> (yb)
  yb: f32[4,4] = gelu(xb)
segment last forward (y2) -> (l)
  l: f32[] = sum(y2)
segment start backward () -> (d)
  d: f32[4,4] = backward l (grad(l))
segment back-b backward (db) -> (gb)
  gb: f32[4,4] = backward yb (db)
segment back-middle backward (g) -> ()
  _, grad(w) = backward h (g)
program
  run before micro-batch 0 (x) -> (r)
  run a micro-batch 0 (r) -> (y1)
  run middle micro-batch 0 (y1) -> (h)
  run b micro-batch 0 (h) -> (y2)
  run last micro-batch 0 (y2) -> (l)
  run start micro-batch 0 () -> (d)
  run back-b micro-batch 0 (d) -> (g)
  run back-middle micro-batch 0 (g) -> ()
"""


def plan_of(text: str) -> Plan:
    plan = read("own.plan", text).plan
    assert plan is not None
    return plan


def with_one_name(plan: Plan, of_b: str) -> Plan:
    """The plan with the names of segment `a` in `b` as well; the gradient in `back-b` is that of the operator in `of_b`."""
    a, b = plan.segments["a"], plan.segments["b"]
    (one,) = a.operators
    (other,) = b.operators
    assert isinstance(one, Compute)
    assert isinstance(other, Compute)
    other = replace(other, inputs=one.inputs, outputs=one.outputs)
    (back,) = plan.segments["back-b"].operators
    assert isinstance(back, Backward)
    changed: dict[str, Segment] = {
        "b": replace(b, inputs=a.inputs, outputs=a.outputs, operators=(other,)),
        "back-b": replace(plan.segments["back-b"], operators=(replace(back, forward={"a": one, "b": other}[of_b]),)),
    }
    tensors = {**plan.tensors, "gb": replace(plan.tensors["gb"], gradient_of="")}
    return replace(plan, segments={**plan.segments, **changed}, tensors=tensors)


def verdict_on(plan: Plan) -> Verdict:
    return prove(in_use(plan), plan_of(REFERENCE))


def test_two_segments_of_other_names_are_proved() -> None:
    assert verdict_on(plan_of(PARALLEL)).outcome is Outcome.PROVED


def test_the_gradient_of_the_last_run_of_a_name_is_proved() -> None:
    assert verdict_on(with_one_name(plan_of(PARALLEL), "b")).outcome is Outcome.PROVED


def test_a_gradient_of_an_earlier_operator_of_the_name_is_not_taken_for_that_of_the_last_run() -> None:
    verdict = verdict_on(with_one_name(plan_of(PARALLEL), "a"))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "other-forward" in {reason.name for reason in verdict.reasons}
