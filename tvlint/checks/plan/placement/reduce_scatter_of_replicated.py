"""reduce-scatter-of-replicated: a complete value is reduced and scattered."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Reduce-scatters over an axis on which every rank holds the complete value."""
    return report(facts, "reduce-scatter-of-replicated", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return f"{defect.operator} sums `{defect.name}` over `{defect.axis}`, where every rank holds the complete value already"


def _help(_: Defect) -> str:
    return "keep the own chunk instead, or reduce the partial value that was meant"
