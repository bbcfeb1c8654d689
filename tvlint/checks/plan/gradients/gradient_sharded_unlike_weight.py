"""gradient-sharded-unlike-weight: a gradient is sharded along another dimension than its weight."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Optimizer steps whose gradient is sharded along another dimension than the weight."""
    return report(facts, "gradient-sharded-unlike-weight", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return (
        f"`{defect.other}` is updated with `{defect.name}`, which is {defect.has} over `{defect.axis}` while the weight is "
        f"{defect.operator}"
    )


def _help(defect: Defect) -> str:
    return f"reduce-scatter `{defect.name}` along the dimension of the weight, {defect.operator}"
