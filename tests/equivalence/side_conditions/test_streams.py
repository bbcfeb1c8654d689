"""Communication on a stream of its own: what is proved needs an event behind every value that the stream reads."""

from __future__ import annotations

import pytest

from tests.equivalence.references import STREAMED
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome, Verdict
from tvlint.readers.plan_text.reader import read

ORDERED = """
mesh t=2
weight w f32[4,4] t:S(1)
input x f32[4,4] t:S(1)
loss l f32[]
program
  p = linear(x, w)
  record made on main
  await made on comm
  y = all-reduce(p) over t async h on comm
  wait h
  g = gelu(y)
  l = sum(g)
  dg = backward l (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward p (dy)
"""


def verdict(text: str) -> Verdict:
    parallel, reference = read("parallel.plan", text).plan, read("reference.plan", STREAMED).plan
    assert parallel is not None
    assert reference is not None
    return prove(parallel, reference)


def test_an_event_behind_the_operand_and_a_wait_order_it() -> None:
    assert verdict(ORDERED).outcome is Outcome.PROVED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  await made on comm\n", ""),
        ("  p = linear(x, w)\n  record made on main\n", "  record made on main\n  p = linear(x, w)\n"),
        ("record made on main", "record made on other"),
        ("  wait h\n", "  wait h on comm\n"),
    ],
)
def test_without_them_nothing_is_proved(old: str, new: str) -> None:
    assert old in ORDERED
    found = verdict(ORDERED.replace(old, new))
    assert found.outcome is not Outcome.PROVED
    assert "cross-stream-access" in {reason.name for reason in found.reasons}
