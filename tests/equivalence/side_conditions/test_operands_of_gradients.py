"""What a gradient takes from its forward operator must be there when it runs, and be what it was."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

REFERENCE = """
weight w f32[8,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  l: f32[1] = sum(h)
  dh = backward l (grad(l))
  _, grad(w) = backward h (dh)
"""

SHARDED = """mesh dp=2
weight w f32[8,8] dp:S(0)
input x f32[8,8]
loss l
program
  f = all-gather(w, dim=0) over dp
  h = linear(x, f)
  l: f32[1] = sum(h)
  dh = backward l (grad(l))
  {0}
  _, df = backward (dh) of {1}
  {2}
  grad(w) = chunk(df, dim=0) over dp
"""

GATHERED = "f2 = all-gather(w, dim=0) over dp async h1"


@pytest.mark.parametrize("forward", ["k = linear(x, f2)", "h = linear(x, f2)"])
def test_a_weight_that_is_gathered_again_for_the_gradient_must_have_come(forward: str) -> None:
    reference, right = plans(REFERENCE, SHARDED.format(GATHERED + "\n  wait h1", forward, ""))
    assert compare(reference, right).outcome == "equal"
    assert verdict_on(SHARDED.format(GATHERED, forward, "wait h1"), REFERENCE).outcome is not Outcome.PROVED


COPIES = """mesh dp=2
weight w f32[8,8]
input x f32[8,8]
loss l
program
  {0}
  h = linear(y, w)
  {1}
  l: f32[1] = sum(h)
  dh = backward l (grad(l))
  _, grad(w) = backward h (dh)
"""


def test_an_operand_that_a_collective_replaces_after_the_forward_operator_is_not_what_it_was() -> None:
    right = COPIES.format("y = identity(x)", "")
    assert verdict_on(right, REFERENCE).outcome is Outcome.PROVED
    reference, wrong = plans(REFERENCE, COPIES.format("y = identity(x)", "y = all-reduce(y) over dp"))
    assert compare(reference, wrong).outcome == "different"
    assert verdict_on(COPIES.format("y = identity(x)", "y = all-reduce(y) over dp"), REFERENCE).outcome is not Outcome.PROVED


def test_a_result_that_a_collective_replaces_is_no_operand() -> None:
    text = """mesh tp=2
weight w f32[8,8] tp:S(1)
input x f32[8,8] tp:S(1)
loss l
program
  h = linear(x, w)
  h = all-reduce(h) over tp
  l: f32[1] = sum(h)
  dh = backward l (grad(l))
  _, grad(w) = backward h (dh)
"""
    assert verdict_on(text, REFERENCE).outcome is Outcome.PROVED


def test_an_operand_that_its_gradient_does_not_need_may_be_replaced() -> None:
    text = """mesh tp=2
weight w f32[8,8] tp:S(1)
input x f32[8,8] tp:S(1)
loss l
program
  h = linear(x, w)
  u = mul(h, 2)
  h = all-reduce(h) over tp
  y = mul(h, 2)
  l: f32[1] = sum(y)
  dy = backward l (grad(l))
  dh = backward (dy) of u = mul(h, 2)
  _, grad(w) = backward h (dh)
"""
    reference = REFERENCE.replace("l: f32[1] = sum(h)", "y = mul(h, 2)\n  l: f32[1] = sum(y)")
    reference = reference.replace("dh = backward l (grad(l))", "dy = backward l (grad(l))\n  dh = backward y (dy)")
    assert verdict_on(text, reference).outcome is Outcome.PROVED


def test_a_gradient_with_other_dimensions_than_its_weight_is_told() -> None:
    """The gradient of the first operand is stored as that of the second, which has fewer dimensions."""
    text = REFERENCE.replace("weight w f32[8,8]", "weight w f32[8]").replace("linear(x, w)", "mul({})")
    text = text.replace("_, grad(w)", "{}")
    plan = text.format("w, x", "_, grad(w)")
    assert verdict_on(plan, text.format("x, w", "_, grad(w)")).outcome is Outcome.REFUTED
    assert verdict_on(text.format("w, x", "grad(w), _"), text.format("x, w", "_, grad(w)")).outcome is Outcome.PROVED
