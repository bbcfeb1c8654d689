"""Flags are no numbers: masks of flags hide what masks of numbers add to, though `False == 0.0`."""

from __future__ import annotations

import pytest

from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

MASKED = """
weight w f32[1,2,8,4]
buffer k f32[1,2,8,4]
input x f32[1,2,8,4]
loss l
program
  q = mul(x, w)
  a = arange(8)
  b = unsqueeze(a, 1)
  c = le(a, b)
  m = MASK
  o = scaled_dot_product_attention(q, k, k, m)
  g = gelu(o)
  l = sum(g)
  dg = backward l (grad(l))
  do = backward g (dg)
  dq, _, _, _ = backward o (do)
  _, grad(w) = backward q (dq)
"""

PAIRS = (
    ("full([8,8], 0.0)", "full([8,8], False)"),
    ("full([8,8], 1.0)", "full([8,8], True)"),
    ("full([8,8], True)", "full([8,8], 1)"),
    ("mul(c, 1.0)", "mul(c, True)"),
    ("add(c, 0.0)", "add(c, False)"),
    ("where(c, 1.0, 0.0)", "where(c, True, False)"),
)


@pytest.mark.parametrize(("one", "other"), [*PAIRS, *(pair[::-1] for pair in PAIRS)])
def test_a_mask_of_flags_is_not_proved_for_a_mask_of_numbers(one: str, other: str) -> None:
    reference, text = MASKED.replace("MASK", one), MASKED.replace("MASK", other)
    assert verdict_on(text, reference).outcome is not Outcome.PROVED


@pytest.mark.parametrize("mask", ["full([8,8], 0.0)", "full([8,8], True)", "mul(c, 1.0)", "where(c, 1.0, 0.0)"])
def test_a_mask_is_proved_for_itself(mask: str) -> None:
    text = MASKED.replace("MASK", mask)
    assert verdict_on(text, text).outcome is Outcome.PROVED
