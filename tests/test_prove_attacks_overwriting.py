"""Calls of operators that nobody knows, whose results nothing uses, and which change what other operators read."""

from __future__ import annotations

import pytest

from tests.test_prove_text_plans import verdict_on
from tvlint.findings import Outcome

REFERENCE = """
weight w f32[8,8]
input x f32[8,8]
loss l
program
  y = linear(x, w)
  g = gelu(y)
  l = sum(g)
  dg = backward l (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
"""


def with_call(call: str) -> str:
    return REFERENCE.replace("  g = ", f"  {call}\n  g = ")


CHANGING = (
    "q = torch.Tensor.zero_(y)",
    "q = torch.Tensor.zero_(w)",
    "q = torch.nn.init.zeros_(w)",
    "q = _operator.setitem(y, 0, x)",
    "q = _operator.iadd(y, x)",
    "q = torch.Tensor.__iadd__(y, x)",
    'q = builtins.setattr(w, "data", x)',
    "q = torch.distributed.all_reduce(y)",
    "q = torch.Tensor.backward(y)",
    "q = torch.manual_seed(y)",
    "q = torch.set_grad_enabled(y)",
    'q = my_fill(y, out="w")',
)


@pytest.mark.parametrize("call", CHANGING)
def test_a_call_that_changes_what_others_read_is_not_proved(call: str) -> None:
    assert verdict_on(with_call(call), REFERENCE).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("call", ["q = my_metric(y)", "q = torch.Tensor.histogram(y)", "q = model.set(y)"])
def test_a_call_that_nobody_knows_is_taken_to_leave_its_operands_as_they_are(call: str) -> None:
    assert verdict_on(with_call(call), REFERENCE).outcome is Outcome.PROVED
