"""What one replica holds stands for what all hold, so that nothing may lie otherwise in another one."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

REFERENCE = """
weight w f32[8,8]
buffer b f32[8]
input x f32[8,8]
output g
loss l
program
  y = linear(x, w)
  z = add(y, b)
  g = gelu(z)
  l = sum(g)
  dg = backward l (grad(l))
  dz = backward g (dg)
  dy, _ = backward z (dz)
  _, grad(w) = backward y (dy)
"""

PROGRAM = """program tp={0}
  y = linear(x{0}, w{0})
  z = add(y, b{0})
  g{0} = gelu(z)
  l0 = sum(g{0})
  l = all-reduce(l0) over tp
  dg = backward l0 (grad(l))
  dz = backward g{0} (dg)
  dy, _ = backward z (dz)
  _, grad(w{0}) = backward y (dy)
  reduce-gradients w{0} over dp
"""


def replicas(declared: str) -> str:
    return f"mesh dp=2 tp=2\nreplicate dp\n{declared}loss l\n{PROGRAM.format(0)}{PROGRAM.format(1)}"


def on_both(name: str, first: str, second: str) -> str:
    return f"{name}0 {first}\n{name}1 {second}\n"


W = on_both("weight w", "f32[4,8] region [0:4,0:8] of w[8,8]", "f32[4,8] region [4:8,0:8] of w[8,8]")
B = on_both("buffer b", "f32[4] region [0:4] of b[8]", "f32[4] region [4:8] of b[8]")
X = on_both("input x", "f32[4,8] of x", "f32[4,8] of x")
WRONG = {
    "weight": on_both("weight w", "f32[8,8] dp:S(0) of w", "f32[4,8] region [4:8,0:8] of w[8,8]") + B + X,
    "buffer": W + on_both("buffer b", "f32[8] dp:S(0) of b", "f32[4] region [4:8] of b[8]") + X,
    "partial": W + on_both("buffer b", "f32[4] dp:P of b", "f32[4] region [4:8] of b[8]") + X,
}


def test_replicas_that_hold_the_same_are_proved() -> None:
    text = replicas(W + B + X)
    reference = REFERENCE.replace("output g\n", "")
    assert verdict_on(text, reference).outcome is Outcome.PROVED
    assert compare(*plans(reference, text)).outcome == "equal"


@pytest.mark.parametrize("declared", WRONG.values(), ids=WRONG)
def test_replicas_that_hold_other_pieces_are_not_proved(declared: str) -> None:
    reference = REFERENCE.replace("output g\n", "")
    assert verdict_on(replicas(declared), reference).outcome is not Outcome.PROVED


def test_what_replicas_return_may_be_declared_to_be_cut_by_them() -> None:
    text = """mesh dp=2
replicate dp
weight w f32[8,8]
buffer b f32[8]
input x f32[4,8]
output g f32[8,8] dp:S(0)
loss l
"""
    text += PROGRAM.format("").replace("program tp=", "program").replace("all-reduce(l0) over tp", "identity(l0)")
    assert verdict_on(text, REFERENCE).outcome is Outcome.PROVED


@pytest.mark.parametrize("message", ["send g to dp-1", "send g to dp+1", "recv r: f32[4,8] from dp-1"])
def test_a_message_along_folded_replicas_is_not_followed(message: str) -> None:
    """The first replica has no one before it, and the others do."""
    text = """mesh dp=2
replicate dp
weight w f32[8,8]
buffer b f32[8]
input x f32[4,8]
loss l
"""
    text += PROGRAM.format("").replace("program tp=", "program").replace("all-reduce(l0) over tp", "identity(l0)")
    reference = REFERENCE.replace("output g\n", "")
    assert verdict_on(text, reference).outcome is Outcome.PROVED
    text = text.replace("  l0 = sum(g)\n", f"  l0 = sum(g)\n  {message}\n")
    assert verdict_on(text, reference).outcome is not Outcome.PROVED
    outer, inner = plans(reference, text)
    assert compare(outer, inner).outcome != "equal"
