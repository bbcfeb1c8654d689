"""Plans that go wrong where a derivation of one micro-batch, one replica and one name for a value does not look."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.equivalence.models.test_attention import plans
from tests.equivalence.references import TWO_LAYERS
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome


def not_proved(text: str, reference: str) -> None:
    assert verdict_on(text, reference).outcome is not Outcome.PROVED


def proved(text: str, reference: str) -> None:
    assert verdict_on(text, reference).outcome is Outcome.PROVED


IN_SEGMENTS = """
micro-batches 2
weight w f32[8,8]
weight v f32[8,8]
input x f32[4,8]
input x0 f32[4,8] of x
input x1 f32[4,8] of x
tensor g f32[4,8]
tensor g0 f32[4,8]
tensor g1 f32[4,8]
tensor p f32[4,8]
tensor l f32[]
output l0 f32[]
output l1 f32[]
segment load data () -> (x)
  x = load()
segment one forward (x) -> (g)
  y = linear(x, w)
  g = gelu(y)
segment two forward (g) -> (l)
  z = linear(g, v)
  q = gelu(z)
  l = sum(q)
segment pass optimizer (g) -> (g)
  record e
segment back backward () -> ()
  dq = backward l (grad(l0))
  dz = backward q (dq)
  dg, grad(v) = backward z (dz)
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
program
  run load micro-batch 0 () -> (x0)
  run load micro-batch 1 () -> (x1)
  run one micro-batch 0 (x0) -> (g0)
  run one micro-batch 1 (x1) -> (g1)
  run two micro-batch 0 (g0) -> (l0)
  run two micro-batch 1 (g1) -> (l1)
  run back micro-batch 0 () -> ()
  run back micro-batch 1 () -> ()
"""


def test_micro_batches_under_names_of_their_own_are_proved() -> None:
    proved(IN_SEGMENTS, TWO_LAYERS)


@pytest.mark.parametrize("batch", ["", "micro-batch 0 "])
def test_a_value_of_one_micro_batch_does_not_reach_others_through_a_run_of_none(batch: str) -> None:
    text = IN_SEGMENTS.replace("(g0) -> (l0)", "(p) -> (l0)").replace("(g1) -> (l1)", "(p) -> (l1)")
    text = text.replace("  run two micro-batch 0", f"  run pass {batch}(g0) -> (p)\n  run two micro-batch 0")
    assert compare(*plans(TWO_LAYERS, text)).outcome == "different"
    not_proved(text, TWO_LAYERS)


def test_a_weight_is_not_bound_to_what_nothing_makes() -> None:
    text = IN_SEGMENTS.replace("one forward (x) ->", "one forward (x, w) ->").replace("(x0) -> (g0)", "(x0, w) -> (g0)")
    proved(text.replace("(x1) -> (g1)", "(x1, w) -> (g1)"), TWO_LAYERS)
    not_proved(text.replace("(x1) -> (g1)", "(x1, nothing) -> (g1)"), TWO_LAYERS)


def test_a_gradient_is_not_given_the_name_of_that_of_another_weight() -> None:
    text = IN_SEGMENTS.replace("back backward () -> ()", "back backward () -> (grad(v), grad(w))")
    right = text.replace("run back micro-batch 0 () -> ()", "run back micro-batch 0 () -> (grad(v), grad(w))")
    not_proved(right.replace("run back micro-batch 1 () -> ()", "run back micro-batch 1 () -> (grad(w), grad(v))"), TWO_LAYERS)


SCALED = """
weight w f32[8,8]
input x f32[8,8]
input t f32[8,8]
loss l
program
  y = linear(x, w)
  s = mul(t, 2.0)
  q = mul(y, s)
  l = sum(q)
  dq = backward l (grad(l))
  dy, _ = backward q (dq)
  _, grad(w) = backward y (dy)
"""

MADE_TWICE = """
micro-batches 2
weight w f32[8,8]
input x f32[4,8]
input t f32[4,8]
tensor s f32[4,8]
loss l
segment other forward () -> (s)
  s = mul(t, 3.0)
segment right forward () -> (s)
  s = mul(t, 2.0)
segment two forward (s) -> (l)
  y = linear(x, w)
  q = mul(y, s)
  l = sum(q)
segment back backward () -> ()
  dq = backward l (grad(l))
  dy, _ = backward q (dq)
  _, grad(w) = backward y (dy)
program
  run other micro-batch 0
  run right micro-batch 0
  run two micro-batch 0
  run back micro-batch 0
"""


@pytest.mark.parametrize(("order", "right"), [(("other", "right"), True), (("right", "other"), False)])
def test_what_is_made_last_is_what_is_read(order: tuple[str, str], right: bool) -> None:
    text = MADE_TWICE + "".join(f"  run {name} micro-batch 1\n" for name in (*order, "two", "back"))
    assert (compare(*plans(SCALED, text)).outcome == "equal") == right
    assert (verdict_on(text, SCALED).outcome is Outcome.PROVED) == right
    if not right:
        not_proved(text, SCALED)


KEPT = """
weight w f32[8,8]
input x f32[8,8]
loss l
program
  u = gelu(x)
  y = linear(u, w)
  l = sum(y)
  dy = backward l (grad(l))
  _, grad(w) = backward y (dy)
"""

REPLACED = """
mesh tp=2
weight w f32[8,8]
input x f32[8,8]
tensor u f32[8,8]
tensor v f32[8,8]
tensor y f32[8,8]
tensor u0 f32[8,8]
tensor p f32[8,8]
loss l f32[]
segment f forward () -> (u, l)
  u = gelu(x)
  y = linear(u, w)
  l = sum(y)
segment g forward (NAME) -> (NAME)
  NAME = all-reduce(NAME) over tp
segment pass forward (u) -> (u)
  record e
segment b backward () -> ()
  dy = backward l (grad(l))
  _, grad(w) = backward y (dy)
program
  run f () -> (u0, l)
"""


@pytest.mark.parametrize("name", ["u", "v"])
@pytest.mark.parametrize("runs", ["  run g (u0) -> (u0)\n", "  run pass (u0) -> (p)\n  run g (p) -> (p)\n"])
def test_an_operand_is_not_replaced_under_another_name(name: str, runs: str) -> None:
    """The gradient of `w` needs `u` as it was, and the all-reduce puts twice of it there."""
    not_proved(REPLACED.replace("NAME", name) + runs + "  run b () -> ()\n", KEPT)


def test_what_is_replaced_and_not_given_is_not_read_as_it_was() -> None:
    """The all-reduce writes where its operand is, which a run before it holds too."""
    text = REPLACED.replace("(NAME) -> (NAME)", "(v) -> ()").replace("NAME", "v").replace("-> (u, l)\n", "-> (u)\n", 1)
    text = text.replace("  y = linear(u, w)\n  l = sum(y)\n", "", 1).replace("() -> (u0, l)", "() -> (u0)")
    text = text.replace("segment pass", "segment h forward (u) -> (l)\n  y = linear(u, w)\n  l = sum(y)\nsegment pass")
    proved(text + "  run h (u0) -> (l)\n  run b () -> ()\n", KEPT)
    not_proved(text + "  run g (u0) -> ()\n  run h (u0) -> (l)\n  run b () -> ()\n", KEPT)
