"""Functions that give the same numbers, and other gradients at a bound: of zeros, as a weight may start, all of them differ."""

from __future__ import annotations

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.analyses.relations.terms.arithmetic import NOT_ZERO
from tvlint.findings import Outcome

PLAN = """weight w f32[8,8]
input x f32[4,8]
loss l
program
h = linear(x, w)
{}
l: f32[] = sum(y)
"""


@pytest.mark.parametrize(
    ("plan", "reference"),
    [
        ("y = clamp(h, -1.0, 1.0)", "y = F.hardtanh(h)"),
        ("y = clamp(h, 0.0, 6.0)", "y = F.relu6(h)"),
        ("y = clamp(h, 0, 6)", "y = F.hardtanh(h, 0, 6)"),
        ("y = clamp(h, min=0.0)", "y = relu(h)"),
        ("y = clamp_min(h, 0)", "y = relu(h)"),
        ("z = zeros_like(h)\ny = maximum(h, z)", "y = relu(h)"),
        ("a = abs(h)\nb = add(a, h)\ny = div(b, 2)", "y = relu(h)"),
    ],
)
def test_what_has_another_gradient_at_a_bound_is_not_proved(plan: str, reference: str) -> None:
    texts = [with_backward(PLAN.format(body)) for body in (plan, reference)]
    for parallel, alone in (texts, texts[::-1]):
        assert verdict_on(f"mesh dp=2\n{parallel}", alone).outcome is not Outcome.PROVED
        assert verdict_on(f"mesh dp=2\n{alone}", alone).outcome is Outcome.PROVED


@pytest.mark.parametrize(
    ("plan", "reference", "is_assumed"),
    [
        ("a = square(h)\nb = sum(a, 1)\ny = sqrt(b)", "y = norm(h, dim=1)", True),
        ("a = square(h)\nb = sum(a, 1)\ny = sqrt(b)", "y = torch.linalg.vector_norm(h, dim=1)", True),
        ("a = var(h, dim=1)\ny = sqrt(a)", "y = std(h, dim=1)", True),
        ("y = norm(h, dim=1)", "y = norm(h, dim=1)", False),
        ("a = square(h)\ny = sum(a, 1)", "c = pow(h, 2)\ny = sum(c, 1)", False),
        ("a = square(h)\nb = sum(a, 1)\ny = sqrt(b)", "a = square(h)\nb = sum(a, 1)\ny = pow(b, 0.5)", False),
    ],
)
def test_a_norm_of_zero_has_a_gradient_where_a_root_has_none_which_is_assumed(
    plan: str, reference: str, is_assumed: bool
) -> None:
    texts = [with_backward(PLAN.format(body)) for body in (plan, reference)]
    for parallel, alone in (texts, texts[::-1]):
        verdict = verdict_on(f"mesh dp=2\n{parallel}", alone)
        assert verdict.outcome is Outcome.PROVED
        assert (NOT_ZERO in verdict.assumptions) is is_assumed
