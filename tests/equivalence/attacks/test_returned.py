"""What a plan declares of the values that it returns holds, or the plan is not proved."""

from __future__ import annotations

import pytest

from tests.equivalence.references import LABELLED
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

ROWS = """
mesh tp=2
weight w f32[8,8]
input x f32[8,8] tp:S(0)
output g ROWS
loss l LOSS
program
  y = linear(x, w)
  g = gelu(y)
  l0 = sum(g)
  l = all-reduce(l0) over tp
  dg = backward l0 (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
  reduce-gradients w over tp
"""


def returning(rows: str, loss: str) -> str:
    return ROWS.replace(" ROWS", f" {rows}").replace("LOSS", loss)


TWO_RESULTS = """
weight w f32[8,8]
input x f32[8,8]
RETURNED
program
  y = linear(x, w)
  g = gelu(y)
  l = sum(g)
  m = sum(y)
  dg = backward l (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
"""


@pytest.mark.parametrize(
    ("returned", "proved"), [("loss l\noutput m", True), ("output l\noutput m", True), ("output l\nloss m", False)]
)
def test_the_loss_is_the_one_of_the_reference(returned: str, proved: bool) -> None:
    text, alone = TWO_RESULTS.replace("RETURNED", returned), TWO_RESULTS.replace("RETURNED", "loss l\noutput m")
    assert (verdict_on(text, alone).outcome is Outcome.PROVED) == proved


SLICES = {
    "f32[4,8]": True,
    "f32[8,8] tp:S(0)": True,
    "f32[8,8] tp:S(0, order=[[0,3],[1,2]])": False,
    "f32[8,8] tp:S(0, parts=[4,4])": False,
    "f32[4,8] tp:R": False,
    "f32[4,8] replicated": False,
    "f32[4,8] part 0/2": False,
    "f32[4,8] region [0:4,0:8] of g[8,8]": False,
}
LOSSES = {
    "f32[]": True,
    "f32[] tp:P(avg)": True,
    "f32[] tp:P(max)": True,
    "f32[] replicated": True,
    "f32[] tp:P": False,
    "f32[] tp:P(prod)": False,
    "f32[] part 1/2": False,
}
DECLARED = [
    *((returning(rows, "f32[]"), right) for rows, right in SLICES.items()),
    *((returning("f32[4,8]", loss), right) for loss, right in LOSSES.items()),
]


@pytest.mark.parametrize(("text", "right"), DECLARED, ids=[*SLICES, *LOSSES])
def test_a_returned_value_is_what_it_is_declared_to_be(text: str, right: bool) -> None:
    assert (verdict_on(text, LABELLED).outcome is Outcome.PROVED) == right
