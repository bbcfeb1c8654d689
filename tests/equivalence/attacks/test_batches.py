"""Micro-batches that are wired wrong where no value that is handed on shows it, and references of a part of the batch."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

REFERENCE = """
weight w f32[8,8]
input x f32[8,8]
output l0
program
  y = linear(x, w)
  g = gelu(y)
  l0 = sum(g)
  dg = backward l0 (grad(l0))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
"""

SEGMENTS = """
micro-batches 2
weight w f32[8,8]
input x f32[4,8]
tensor l f32[]
output l0 f32[]
output l1 f32[]
segment load data () -> (x)
  x = load()
segment forth forward (x) -> (l)
  y = linear(x, w)
  g = gelu(y)
  l = sum(g)
segment back backward () -> ()
  dg = backward l (grad(l0))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
program
"""


def batches(*steps: str) -> str:
    return SEGMENTS + "".join(f"  run {step}\n" for step in steps)


LOADS = ("load micro-batch 0 () -> (x0)", "load micro-batch 1 () -> (x1)")
FORTH = ("forth micro-batch 0 (x0) -> (l0)", "forth micro-batch 1 (x1) -> (l1)")
BACK = ("back micro-batch 0 () -> ()", "back micro-batch 1 () -> ()")


def test_what_is_wired_right_is_proved() -> None:
    text = batches(*LOADS, FORTH[0], BACK[0], FORTH[1], BACK[1])
    assert verdict_on(text, REFERENCE).outcome is Outcome.PROVED


@pytest.mark.parametrize("names", ["() -> (x)", ""])
def test_one_load_is_not_the_load_of_every_micro_batch(names: str) -> None:
    steps = [step.replace("(x0)", "(x)").replace("(x1)", "(x)") for step in (FORTH[0], BACK[0], FORTH[1], BACK[1])]
    text = batches(f"load {names}", *steps)
    verdict = verdict_on(text, REFERENCE)
    assert verdict.outcome is not Outcome.PROVED
    assert "outside-micro-batches" in [reason.name for reason in verdict.reasons]
    assert compare(*plans(REFERENCE, text)).outcome != "equal"


def test_a_gradient_is_not_taken_before_its_forward_run() -> None:
    text = batches(*LOADS, FORTH[0], BACK[0], BACK[1], FORTH[1])
    verdict = verdict_on(text, REFERENCE)
    assert verdict.outcome is Outcome.REFUTED
    assert "gradient-before-forward" in [reason.name for reason in verdict.reasons]
    assert compare(*plans(REFERENCE, text)).outcome != "equal"


DRAWN = """
weight w f32[8,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  a = dropout(h, 0.5)
  b = dropout(h, 0.5)
  c = gelu(b)
  d = mul(a, c)
  l = sum(d)
  dd = backward l (grad(l))
  da, dc = backward d (dd)
  db = backward c (dc)
  dh = backward b (db)
  dh = backward a (da)
  _, grad(w) = backward h (dh)
"""

DRAWING = """
micro-batches 2
weight w f32[8,8]
input x f32[4,8]
loss l
segment first forward (x) -> (h)
  h = linear(x, w)
segment one forward (h) -> (a)
  a = dropout(h, 0.5)
segment two forward (h) -> (b)
  b = dropout(h, 0.5)
segment last forward (a, b) -> (c, l)
  c = gelu(b)
  d = mul(a, c)
  l = sum(d)
segment back backward mirror last (l, h) -> ()
  dd = backward l (grad(l))
  da, dc = backward d (dd)
  db = backward c (dc)
  dh = backward b (db)
  dh = backward a (da)
  _, grad(w) = backward h (dh)
program
"""


@pytest.mark.parametrize(("draws", "outcome"), [(("one", "two"), Outcome.PROVED), (("two", "one"), Outcome.UNKNOWN)])
def test_draws_come_in_one_order_in_every_micro_batch(draws: tuple[str, str], outcome: Outcome) -> None:
    """The n-th draw for a value is the n-th of the reference; drawn in another order, numbers change places."""
    steps = [(number, name) for number in (0, 1) for name in ("first", *(draws if number else ("one", "two")), "last", "back")]
    text = DRAWING + "".join(f"  run {name} micro-batch {number}\n" for number, name in steps)
    assert verdict_on(text, DRAWN).outcome is outcome


PART = """
weight w f32[8]
input x f32[8,8]
loss l
program
  s = sum(x, dim=0)
  h = mul(s, w)
  l = sum(h)
  dh = backward l (grad(l))
  _, grad(w) = backward h (dh)
"""


@pytest.mark.parametrize("part", ["", "f32[4,8] region [0:4,0:8] of x[8,8]", "f32[4,8] region [4:8,0:8] of x[8,8]"])
def test_a_reference_that_reads_a_part_of_the_batch_is_none(part: str) -> None:
    text = "mesh dp=2\nreplicate dp" + PART.replace("x f32[8,8]", "x f32[4,8]") + "  reduce-gradients w over dp\n"
    verdict = verdict_on(text, PART.replace("f32[8,8]", part) if part else PART)
    assert (verdict.outcome is Outcome.PROVED) == (not part)
