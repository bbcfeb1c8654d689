"""partial-times-partial: two partial sums are multiplied."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Products of two values that are both partial over one axis."""
    return report(facts, "partial-times-partial", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return f"{defect.operator} multiplies `{defect.name}` and `{defect.other}`, both partial over `{defect.axis}`"


def _help(defect: Defect) -> str:
    return f"reduce both over `{defect.axis}` before they are multiplied"
