"""Correct programs, real and made up, on which no rule may speak of an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.correct_programs import PROGRAMS
from tests.builders.plan_findings import findings_of_plan, findings_of_text
from tests.sampling import sampled
from tests.shared import SHARED, needs_shared
from tvlint.findings import Severity
from tvlint.readers.nnscaler.pickle import reader as nnscaler_pickle


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_correct_program_has_no_error(name: str) -> None:
    errors = [finding for finding in findings_of_text(PROGRAMS[name]) if finding.severity is Severity.ERROR]
    assert errors == []


def _good_plans() -> list[Path]:
    return sorted((SHARED / "plans" / "good").glob("*.pkl.xz")) if SHARED is not None else []


@needs_shared
@pytest.mark.parametrize("path", sampled(_good_plans(), 3), ids=lambda path: getattr(path, "stem", "none"))
def test_an_exported_plan_that_is_correct_has_no_finding(path: Path) -> None:
    plan = nnscaler_pickle.read(path.name, path.read_bytes()).plan
    assert plan is not None
    assert findings_of_plan(plan) == []
