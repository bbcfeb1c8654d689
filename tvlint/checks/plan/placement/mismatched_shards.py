"""mismatched-shards: operands are split over one axis in ways that do not go together."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Operators whose operands hold different pieces on one rank."""
    return report(facts, "mismatched-shards", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return (
        f"{defect.operator} combines `{defect.name}`, {defect.has} over "
        f"`{defect.axis}`, with `{defect.other}`, which is not split that way"
    )


def _help(defect: Defect) -> str:
    return f"gather one operand over `{defect.axis}`, or split both alike"
