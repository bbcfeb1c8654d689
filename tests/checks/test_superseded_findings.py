"""What follows from a mistake at the same place is left out, as the page of its rule says."""

from __future__ import annotations

import pytest

from tests.builders.plan_findings import RULES
from tvlint.checks import without_consequences
from tvlint.findings import Finding, Severity
from tvlint.ir.location import Location


def found(rule: str, severity: Severity, *about: str, line: int = 3) -> Finding:
    return Finding(rule, severity, "is wrong", Location("a.plan", line), about=about)


@pytest.mark.parametrize(
    ("cause", "other", "left_out"),
    [
        (Severity.ERROR, found("shape-mismatch", Severity.ERROR, "w"), True),
        (Severity.ERROR, found("shape-mismatch", Severity.WARNING, "w"), True),
        (Severity.WARNING, found("shape-mismatch", Severity.WARNING, "w"), True),
        (Severity.WARNING, found("shape-mismatch", Severity.ERROR, "w"), False),
        (Severity.ERROR, found("shape-mismatch", Severity.ERROR, "v"), False),
        (Severity.ERROR, found("shape-mismatch", Severity.ERROR, "w", line=4), False),
        (Severity.ERROR, found("norm-over-shards", Severity.ERROR, "w"), False),
    ],
)
def test_what_follows_is_left_out_where_its_cause_is_as_bad(cause: Severity, other: Finding, left_out: bool) -> None:
    first = found("missing-gradient-reduction", cause, "w", "grad(w)")
    assert [*without_consequences([other, first], RULES)] == ([first] if left_out else [other, first])
