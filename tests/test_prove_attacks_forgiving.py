"""Plans that compute something else than their reference, and were proved by what the proof forgives."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.certificates import forged, objection
from tests.test_prove_attention import plans
from tests.test_prove_text_plans import verdict_on
from tvlint.findings import Outcome

PENALTY = """
weight w f32[8,8]
input x f32[8,8]
loss l
program
  y = linear(x, w)
  g = gelu(w)
  l = sum(g)
  dg = backward l (grad(l))
  grad(w) = backward g (dg)
"""
GIVEN = "  _, grad(w) = backward y (grad(w))\n"
RENAMED = PENALTY.replace("  grad(w) = backward g (dg)\n", "  dw = backward g (dg)\n  _, grad(w) = backward y (dw)\n")


@pytest.mark.parametrize("later", [GIVEN, "  dw = identity(grad(w))\n  _, grad(w) = backward y (dw)\n"])
def test_the_gradient_of_a_weight_is_not_zero_where_another_operator_is_given_it(later: str) -> None:
    assert compare(*plans(PENALTY, PENALTY + later)).outcome == "different"
    assert verdict_on(PENALTY, PENALTY).outcome is Outcome.PROVED
    assert verdict_on(PENALTY + later, PENALTY).outcome is Outcome.UNKNOWN


def test_nor_is_it_where_it_goes_by_another_name() -> None:
    assert compare(*plans(PENALTY, RENAMED)).outcome == "different"
    assert verdict_on(RENAMED, PENALTY).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("plan", [PENALTY + GIVEN, RENAMED])
def test_certificates_made_up_for_it_do_not_hold(plan: str) -> None:
    parallel, reference = plans(plan, PENALTY)
    own = forged(parallel, reference)
    assert own is not None
    assert "gradient of `w`" in objection(own, parallel, reference)


def test_nor_is_it_where_another_micro_batch_has_made_it() -> None:
    lines = PENALTY.replace("x f32[8,8]", "x f32[4,8]").replace("  grad(w)", GIVEN + "  grad(w)")
    two = "micro-batches 2\n" + lines
    assert verdict_on(two, PENALTY).outcome is not Outcome.PROVED
