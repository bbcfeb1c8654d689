"""Plans whose communication overlaps with work: what is under way is not touched, on no rank and no stream."""

from __future__ import annotations

import pytest

from tests.equivalence.models.test_attention import plans
from tests.equivalence.references import STREAMED
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome

WHOLE = """
mesh t=2
weight w f32[4,4] t:S(1)
input x f32[4,4] t:S(1)
loss l f32[]
program
  p = linear(x, w)
  y = all-reduce(p) over t async h
  wait h
  g = gelu(y)
  l = sum(g)
  dg = backward l (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward p (dy)
"""

SEGMENTS = """
mesh t=2
weight w f32[4,4] t:S(1)
input x f32[4,4] t:S(1)
tensor y f32[4,4]
loss l f32[]
segment one forward (x) -> (y)
  p = linear(x, w)
  y = all-reduce(p) over t async h
segment two forward (y) -> (l)
  wait h
  g = gelu(y)
  l = sum(g)
segment back backward mirror two () -> (dy)
  dg = backward l (grad(l))
  dy = backward g (dg)
segment last backward mirror one (dy) -> ()
  _, grad(w) = backward p (dy)
program
  run one micro-batch 0
  run two micro-batch 0
  run back micro-batch 0
  run last micro-batch 0
"""

ACROSS_BATCHES = """
mesh pp=2
micro-batches 2
weight w f32[4,4]
input x f32[2,4]
loss l f32[]
segment first forward (x) -> (y)
  y = linear(x, w)
segment give forward (y) -> ()
  send y to pp+1 async out
segment done forward () -> ()
  wait out
segment get forward () -> (y)
  recv y: f32[2,4] from pp-1 async in
segment second forward (y) -> (l)
  wait in
  g = gelu(y)
  l = sum(g)
segment back backward mirror second () -> (dy)
  dg = backward l (grad(l))
  dy = backward g (dg)
segment return backward (dy) -> ()
  send dy to pp-1
segment take backward () -> (dy)
  recv dy: gradient f32[2,4] grad-of y from pp+1
segment last backward mirror first (dy) -> ()
  _, grad(w) = backward y (dy)
program pp=0
  run first micro-batch 0
  run give micro-batch 0
  run first micro-batch 1
  run done micro-batch 0
  run take micro-batch 0
  run last micro-batch 0
  run give micro-batch 1
  run done micro-batch 1
  run take micro-batch 1
  run last micro-batch 1
program pp=1
  run get micro-batch 0
  run second micro-batch 0
  run back micro-batch 0
  run return micro-batch 0
  run get micro-batch 1
  run second micro-batch 1
  run back micro-batch 1
  run return micro-batch 1
"""

EVENT = WHOLE.replace("  y = all", "  record e on main\n  await e on comm\n  y = all").replace("async h\n", "async h on comm\n")

RIGHT = {"within a segment": WHOLE, "across segments": SEGMENTS, "on a stream": EVENT, "across micro-batches": ACROSS_BATCHES}


@pytest.mark.parametrize("name", list(RIGHT))
def test_communication_that_is_waited_for_is_proved(name: str) -> None:
    right, reference = plans(RIGHT[name], STREAMED)
    assert prove(right, reference).outcome is Outcome.PROVED


WRONG = {
    "read too early": (WHOLE, "  wait h\n  g = gelu(y)", "  g = gelu(y)\n  wait h", "missing-wait"),
    "never waited for": (WHOLE, "  wait h\n", "", "handle-never-waited"),
    "waited for after the end": (SEGMENTS, "  wait h\n", "", "handle-never-waited"),
    "another handle": (WHOLE, "wait h", "wait k", "unknown-handle"),
    "read in the next segment": (
        SEGMENTS,
        "  wait h\n  g = gelu(y)",
        "  g = gelu(y)\n  wait h",
        "missing-wait",
    ),
    "waited for twice": (SEGMENTS, "  wait h\n", "  wait h\n  wait h\n", "double-wait"),
    "no event": (EVENT, "  await e on comm\n", "", "cross-stream-access"),
    "an event of another stream": (EVENT, "record e on main", "record e on other", "cross-stream-access"),
    "an event that is too early": (
        EVENT,
        "  p = linear(x, w)\n  record e on main\n",
        "  record e on main\n  p = linear(x, w)\n",
        "cross-stream-access",
    ),
    "waited for by another stream": (EVENT, "  wait h\n", "  wait h on comm\n", "cross-stream-access"),
    "work on another stream": (WHOLE, "g = gelu(y)", "g = gelu(y) on comm", "side-stream"),
    "one handle twice for one micro-batch": (
        ACROSS_BATCHES,
        "  run first micro-batch 1\n  run done micro-batch 0\n",
        "  run first micro-batch 1\n  run give micro-batch 1\n  run done micro-batch 0\n",
        "repeated-micro-batch",
    ),
    "never waited for at all": (ACROSS_BATCHES, "  run done micro-batch 1\n", "", "missing-micro-batch"),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_what_is_touched_under_way_is_not_proved(name: str) -> None:
    text, before, after, reason = WRONG[name]
    assert before in text
    verdict = prove(*plans(text.replace(before, after), STREAMED))
    assert verdict.outcome is not Outcome.PROVED
    assert reason in [found.name for found in verdict.reasons]


def test_a_buffer_may_be_read_again_while_it_is_sent_but_not_written() -> None:
    text = ACROSS_BATCHES.replace("  send y to pp+1 async out\n", "  send y to pp+1 async out\n  z = gelu(y)\n")
    assert prove(*plans(text, STREAMED)).outcome is Outcome.PROVED
    verdict = prove(*plans(text.replace("z = gelu(y)", "y = gelu(x)"), STREAMED))
    assert "buffer-in-flight" in [found.name for found in verdict.reasons]
