"""Which findings a report for people shows together, and at which place."""

from __future__ import annotations

import pytest

from tvlint.findings import Finding, Related, Severity
from tvlint.ir.location import Location
from tvlint.reporters.one_cause import of_one_cause

TP, PP, HEADS, LAYERS = (Location("train.sh", line) for line in (1, 2, 3, 4))
REPAIR = "all rules hold with `--tp 4` (now 3)"


def finding(at: Location, *named: tuple[str, Location], help: str = f"use others; {REPAIR}") -> Finding:
    related = tuple(Related(f"`{name}` is 3 here", place) for name, place in named)
    return Finding("a-rule", Severity.ERROR, "it does not divide", at, help, related)


@pytest.mark.parametrize(
    ("findings", "places"),
    [
        ((finding(HEADS, ("--tp", TP)), finding(LAYERS, ("--tp", TP))), [TP]),
        ((finding(TP), finding(HEADS, ("--tp", TP))), [TP]),
        ((finding(TP), finding(TP)), [TP]),
        ((finding(HEADS, ("--pp", PP), ("--tp", TP)), finding(LAYERS, ("--pp", PP), ("--tp", TP))), [TP]),
        ((finding(HEADS, ("--tp", TP)), finding(LAYERS, ("--pp", PP))), [HEADS, LAYERS]),
        ((finding(HEADS, ("--tp", TP)), finding(LAYERS, ("--tp", TP), help="use others")), [HEADS, LAYERS]),
        ((finding(HEADS, ("--tp", TP), help=""), finding(LAYERS, ("--tp", TP), help="")), [HEADS, LAYERS]),
        ((finding(HEADS, ("--tp", TP)), finding(PP), finding(LAYERS, ("--tp", TP))), [HEADS, PP, LAYERS]),
    ],
)
def test_findings_stand_at_the_setting_that_repairs_all_of_them(findings: tuple[Finding, ...], places: list[Location]) -> None:
    causes = [*of_one_cause(findings)]
    assert [cause.location for cause in causes] == places
    assert [each for cause in causes for each in cause.findings] == [*findings]
