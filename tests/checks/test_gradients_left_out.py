"""Exported plans whose backward leaves out a gradient, or takes none, and goes on all the same."""

from __future__ import annotations

import pytest
from oracle.generate import random_pair
from oracle.mutate import mutants

from tests.builders.plan_findings import findings_of_plan
from tvlint.ir.operators import Backward
from tvlint.ir.plan import Plan


def _backwards(plan: Plan) -> list[Backward]:
    return [each for segment in plan.segments.values() for each in segment.operators if isinstance(each, Backward)]


def _goes_on_without(plan: Plan) -> bool:
    """Whether a backward gives gradients and takes none."""
    return any(any(each.outputs) and not any(each.inputs) for each in _backwards(plan))


@pytest.mark.parametrize("seed", range(4))
def test_a_backward_that_takes_no_gradient_is_no_start(seed: int) -> None:
    plan = random_pair(seed).parallel
    broken = [each.plan for each in mutants(plan) if each.kind == "gradient-dropped" and _goes_on_without(each.plan)]
    assert not _goes_on_without(plan)
    assert broken
    for each in broken[:6]:
        assert "use-before-definition" in {finding.rule for finding in findings_of_plan(each)}
    assert "use-before-definition" not in {finding.rule for finding in findings_of_plan(plan)}
