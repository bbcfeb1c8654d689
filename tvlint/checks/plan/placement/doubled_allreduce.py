"""doubled-allreduce: a complete value is summed over ranks again."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Sums over an axis on which every rank holds the complete value already."""
    return report(facts, "doubled-allreduce", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return f"{defect.operator} sums `{defect.name}` over `{defect.axis}`, where every rank holds the complete value already"


def _help(defect: Defect) -> str:
    return f"remove the {defect.operator}, or reduce the partial value that was meant"
