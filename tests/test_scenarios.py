"""Small mistakes are named and their correct twins are not."""

from __future__ import annotations

import pytest

from tests.plan_findings import findings_of_text
from tests.scenarios import collectives, gradients, order, partial_sums, sequences
from tests.scenarios.scenario import Scenario
from tvlint.findings import Severity

SCENARIOS = [each for room in (partial_sums, collectives, sequences, gradients, order) for each in room.SCENARIOS]


def errors_of(scenario: Scenario) -> set[str]:
    """The rules that call something in the plan an error."""
    return {finding.rule for finding in findings_of_text(scenario.text) if finding.severity is Severity.ERROR}


@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if each.rules], ids=lambda each: each.name)
def test_the_mistake_is_named(scenario: Scenario) -> None:
    spoken = {finding.rule for finding in findings_of_text(scenario.text) if finding.severity is not Severity.NOTE}
    assert spoken & scenario.rules


@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if not each.rules], ids=lambda each: each.name)
def test_the_correct_plan_has_no_error(scenario: Scenario) -> None:
    assert errors_of(scenario) == set()
