"""A communicator has the ranks that it is declared with, and no others communicate by it."""

from __future__ import annotations

import pytest

from tests.equivalence.references import TWO_LAYERS
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

STAGES = """
mesh pp=2 tp=2
communicator c over COMMUNICATOR
weight w f32[8,8]
weight v f32[8,8]
input x f32[8,8] tp:S(0)
loss l f32[]
program pp=0
  y = linear(x, w)
  g = gelu(y)
  send g to pp+1 via MESSAGES
  recv dg: f32[4,8] from pp+1 via MESSAGES
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
  reduce-gradients w over tp named GROUP
program pp=1
  recv g1: f32[4,8] from pp-1 via MESSAGES
  z = linear(g1, v)
  q = gelu(z)
  s = sum(q)
  l = all-reduce(s) over tp named GROUP
  dq = backward s (grad(l))
  dz = backward q (dq)
  dg, grad(v) = backward z (dz)
  send dg to pp-1 via MESSAGES
  reduce-gradients v over tp
"""


@pytest.mark.parametrize(
    ("communicator", "messages", "group", "right"),
    [
        ("pp", "c", "other", True),
        ("pp,tp", "c", "other", True),
        ("tp", "other", "c", True),
        ("tp", "c", "other", False),
        ("ranks 0,2", "c", "other", False),
        ("pp", "other", "c", False),
        ("pp,tp", "other", "c", False),
        ("ranks 0,1", "other", "c", False),
    ],
)
def test_by_a_communicator_its_own_ranks_communicate(communicator: str, messages: str, group: str, right: bool) -> None:
    text = STAGES.replace("COMMUNICATOR", communicator).replace("MESSAGES", messages).replace("GROUP", group)
    assert (verdict_on(text, TWO_LAYERS).outcome is Outcome.PROVED) == right
