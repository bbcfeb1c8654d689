"""Plans that touch what is under way, unseen under another name, on another stream, or by a handle that is used anew."""

from __future__ import annotations

import pytest

from tests.equivalence.attacks.test_folding import TWO_LAYERS, not_proved, proved

STAGES = """
mesh pp=2
weight w f32[8,8]
weight v f32[8,8]
input x f32[8,8]
tensor g f32[8,8]
tensor g0 f32[8,8]
tensor p f32[8,8]
loss l f32[]
segment f0 forward () -> (g)
  y = linear(x, w)
  g = gelu(y)
  send g to pp+1
segment b0 backward () -> ()
  recv dg: f32[8,8] from pp+1
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
segment r forward () -> (g)
  recv g from pp-1 async h
segment pass forward (g) -> (g)
  record e
segment f1 forward (g) -> (l)
  z = linear(g, v)
  q = gelu(z)
  l = sum(q)
segment done forward () -> ()
  wait h
segment b1 backward () -> ()
  dq = backward l (grad(l))
  dz = backward q (dq)
  dg, grad(v) = backward z (dz)
  send dg to pp-1
program pp=0
  run f0
  run b0
program pp=1
  run r () -> (g0)
"""


def test_what_is_under_way_is_not_read_under_another_name() -> None:
    proved(STAGES + "  run done\n  run f1 (g0) -> (l)\n  run b1\n", TWO_LAYERS)
    not_proved(STAGES + "  run f1 (g0) -> (l)\n  run done\n  run b1\n", TWO_LAYERS)
    not_proved(STAGES + "  run pass (g0) -> (p)\n  run f1 (p) -> (l)\n  run done\n  run b1\n", TWO_LAYERS)


ASIDE = (
    STAGES[: STAGES.index("segment r ")]
    + """
segment s forward (NAME) -> ()
  await event on side
  send NAME to pp+1 async k on side
segment done forward () -> ()
  wait k
segment ready forward () -> ()
  record event on main
segment f1 forward () -> (l)
  recv g: f32[8,8] from pp-1
  z = linear(g, v)
  q = gelu(z)
  l = sum(q)
segment b1 backward () -> ()
  dq = backward l (grad(l))
  dz = backward q (dq)
  dg, grad(v) = backward z (dz)
  send dg to pp-1
program pp=1
  run f1
  run b1
program pp=0
"""
)


@pytest.mark.parametrize("name", ["g", "p"])
def test_what_another_stream_sends_is_there_under_whatever_name(name: str) -> None:
    text = ASIDE.replace("  send g to pp+1\n", "").replace("NAME", name)
    proved(text + "  run f0 () -> (g0)\n  run ready\n  run s (g0) -> ()\n  run done\n  run b0\n", TWO_LAYERS)
    not_proved(text + "  run ready\n  run f0 () -> (g0)\n  run s (g0) -> ()\n  run done\n  run b0\n", TWO_LAYERS)


USED_TWICE = """
weight w f32[8,8]
input x f32[8,8]
input c f32[8,8]
loss l
program
  y = linear(x, w)
  g = gelu(y)
  k = linear(c, w)
  a = sum(k)
  b = sum(g)
  l = add(a, b)
  da, db = backward l (grad(l))
  dg = backward b (db)
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
  dk = backward a (da)
  _, grad(w) = backward k (dk)
"""

REDUCED_BETWEEN = """
mesh tp=2
weight w f32[8,8]
input x f32[8,8] tp:S(0)
input c f32[8,8]
loss l f32[]
segment forth forward () -> (l, a, b, b0)
  y = linear(x, w)
  g = gelu(y)
  k = linear(c, w)
  a = sum(k)
  b0 = sum(g)
  b = all-reduce(b0) over tp
  l = add(a, b)
segment back backward (l) -> (da, grad(w))
  da, db = backward l (grad(l))
  dg = backward b0 (db)
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
segment whole reduce (grad(w)) -> (grad(w))
  grad(w) = all-reduce(grad(w)) over tp async h
segment more backward (da) -> (grad(w))
  dk = backward a (da)
  _, grad(w) = backward k (dk)
segment done reduce () -> ()
  wait h
program
"""


@pytest.mark.parametrize("batch", ["", " micro-batch 0"])
def test_nothing_is_added_to_a_gradient_under_way_however_its_one_micro_batch_is_called(batch: str) -> None:
    text = REDUCED_BETWEEN + f"  run forth{batch}\n  run back{batch}\n  run whole\n"
    proved(text + f"  run done\n  run more{batch}\n", USED_TWICE)
    not_proved(text + f"  run more{batch}\n  run done\n", USED_TWICE)


def test_a_handle_is_of_one_communication_at_a_time() -> None:
    """What `done` waits for is what was started last, and the first message may still be on its way."""
    text = ASIDE.replace("NAME", "g").replace("  send g to pp+1\n", "").replace(" on side", "").replace("  await event\n", "")
    text = text.replace("segment done", "segment again forward () -> ()\n  HANDLE\nsegment done")
    runs = "  run f0 () -> (g0)\n  run s (g0) -> ()\n  run again\n  run done\n  run b0\n"
    summed = "tensor c f32[8,8]\nbuffer k f32[8,8]\nloss l"
    text = text.replace("loss l", summed, 1).replace("program pp=1\n", "program pp=1\n  run ask\n")
    text = text.replace("segment b1 ", "segment ask forward () -> ()\n  c = all-reduce(k) over pp\nsegment b1 ")
    right = text.replace("HANDLE", "c = all-reduce(k) over pp") + runs
    reference = TWO_LAYERS.replace("loss l", "buffer k f32[8,8]\nloss l")
    not_proved(text.replace("HANDLE", "c = all-reduce(k) over pp async k") + runs, reference)
    proved(right.replace("  run s (g0) -> ()\n  run again\n", "  run again\n  run s (g0) -> ()\n"), reference)
