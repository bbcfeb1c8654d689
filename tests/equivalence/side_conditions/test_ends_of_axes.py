"""Messages beyond the end of an axis: no rank is there, so a plan that sends or expects one does not run."""

from __future__ import annotations

import pytest

from tests.builders.plan_findings import rules_of_text
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

REFERENCE = """
weight w f32[8,8]
weight v f32[8,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  a = gelu(h)
  y = linear(a, v)
  z = gelu(y)
  l: f32[] = sum(z)
  dz = backward l (grad(l))
  dy = backward z (dz)
  da, grad(v) = backward y (dy)
  dh = backward a (da)
  _, grad(w) = backward h (dh)
"""

STAGES = """
mesh pp=2
weight w f32[8,8]
weight v f32[8,8]
input x f32[8,8]
loss l
program pp=0
  h = linear(x, w)
  a = gelu(h)
  send a to pp+1
  recv da: f32[8,8] from pp+1
  dh = backward a (da)
  _, grad(w) = backward h (dh)
program pp=1
  recv a: f32[8,8] from pp-1
  y = linear(a, v)
  z = gelu(y)
  l: f32[] = sum(z)
  dz = backward l (grad(l))
  dy = backward z (dz)
  da, grad(v) = backward y (dy)
  send da to pp-1
"""

BEYOND = {
    "a send of the last stage": ("  z = gelu(y)\n", "  send y to pp+1\n"),
    "a send two stages on": ("  z = gelu(y)\n", "  send y to pp+2\n"),
    "an asynchronous send": ("  z = gelu(y)\n", "  send y to pp+1 async s\n  wait s\n"),
    "a receive of the first stage": ("  h = linear(x, w)\n", "  recv q: f32[8,8] from pp-1\n"),
    "a receive over what is there": ("  a = gelu(h)\n", "  recv h: f32[8,8] from pp-1\n"),
    "a gradient for the stage before the first": ("  _, grad(w) =", "  send dh to pp-1\n"),
    "a gradient of the stage after the last": ("  dy = backward z (dz)\n", "  recv q: f32[8,8] from pp+1\n"),
}


@pytest.mark.parametrize("message", BEYOND)
def test_a_message_beyond_the_end_of_an_axis_is_refuted_and_found(message: str) -> None:
    place, line = BEYOND[message]
    assert place in STAGES
    text = STAGES.replace(place, line + place)
    verdict = verdict_on(text, REFERENCE)
    assert verdict.outcome is Outcome.REFUTED
    assert any("beyond the end of `pp`" in reason.message for reason in verdict.reasons if reason.name == "unknown-peer")
    assert rules_of_text(text) & {"unmatched-send", "unmatched-receive"}


def test_the_stages_are_proved_without() -> None:
    assert verdict_on(STAGES, REFERENCE).outcome is Outcome.PROVED
    assert not rules_of_text(STAGES) & {"unmatched-send", "unmatched-receive"}


def test_a_ring_has_no_end() -> None:
    text = STAGES.replace("send a to pp+1", "send a to pp+1 ring").replace("from pp-1", "from pp-1 ring")
    assert verdict_on(text, REFERENCE).outcome is Outcome.PROVED
