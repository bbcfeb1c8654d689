"""Plans that do not declare what an operator makes, whose sizes then follow from nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from oracle.generate import random_pair

from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.ir.operators import Compute

PAIR = random_pair(15)


@pytest.mark.parametrize("last", ["gate_fw", "linear"])
def test_a_result_that_is_declared_nowhere_is_no_crash(last: str) -> None:
    plan = PAIR.parallel
    operators = [own for segment in plan.segments.values() for own in segment.operators if isinstance(own, Compute)]
    made = {name for own in operators if own.op.rsplit(".", 1)[-1] == last for name in own.outputs}
    assert made
    left = {name: tensor for name, tensor in plan.tensors.items() if name not in made}
    assert prove(replace(plan, tensors=left), PAIR.reference).outcome is not Outcome.REFUTED


NONE_MADE = """mesh tp=2
weight w f32[8,8] tp:S(0)
input x f32[8,8]
tensor o f32[8,1]
gradient none f32[{0}] grad-of o
loss l
program tp=0
  h = linear(x, w)
  o = sum(x, dim=1, keepdim=True)
  a = sum(h)
  l: f32[] = all-reduce(a) over tp
  dh = backward a (grad(l))
  dx, grad(w) = backward h (dh)
  d: f32[8,8] = all-reduce(dx) over tp
program tp=1
  h = linear(x, w)
  o = sum(x, dim=1, keepdim=True)
  a = sum(h)
  l: f32[] = all-reduce(a) over tp
  dh = backward a (grad(l))
  dx, grad(w) = backward h (dh)
  d: f32[8,8] = all-reduce(none) over tp
"""

ALONE = """
weight w f32[8,8]
input x f32[8,8]
loss l f32[]
program
  h = linear(x, w)
  l = sum(h)
  dh = backward l (grad(l))
  _, grad(w) = backward h (dh)
"""


def test_a_gradient_that_nothing_makes_is_not_summed_with_one_of_another_shape() -> None:
    assert verdict_on(NONE_MADE.format("8,8"), ALONE).outcome is Outcome.PROVED
    assert verdict_on(NONE_MADE.format("8,1"), ALONE).outcome is not Outcome.PROVED
