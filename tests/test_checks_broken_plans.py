"""Exported plans with one defect that shows without a reference plan."""

from __future__ import annotations

import pytest

from tests.plan_findings import findings_of_plan
from tests.shared import SHARED, needs_shared
from tvlint.readers import nnscaler_pickle

DEFECTS = {
    "br2": {"use-before-definition"},
    "br6": {"mismatched-message"},
    "br14": {"unbalanced-backward"},
    "br14r": {"reducer-before-last-backward"},
    "unbroken-control": set(),
}


@needs_shared
@pytest.mark.parametrize("name", DEFECTS)
def test_the_defect_is_named(name: str) -> None:
    assert SHARED is not None
    path = SHARED / "plans" / "broken" / f"{name}.pkl.xz"
    plan = nnscaler_pickle.read(path.name, path.read_bytes()).plan
    assert plan is not None
    assert {finding.rule for finding in findings_of_plan(plan)} == DEFECTS[name]
