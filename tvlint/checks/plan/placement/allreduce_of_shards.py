"""allreduce-of-shards: different pieces of a value are summed."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Reductions over an axis on which the ranks hold different pieces."""
    return report(facts, "allreduce-of-shards", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return f"{defect.operator} adds up different pieces: `{defect.name}` is {defect.has} over `{defect.axis}`"


def _help(defect: Defect) -> str:
    return f"gather over `{defect.axis}`, or reduce over the axis on which the value is partial"
