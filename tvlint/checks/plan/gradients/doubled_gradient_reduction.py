"""doubled-gradient-reduction: a complete gradient is summed over ranks."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Gradient reductions over an axis on which the gradient is complete already."""
    return report(facts, "doubled-gradient-reduction", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return (
        f"the gradient of `{defect.other}` is summed over `{defect.axis}`, where every rank holds the complete gradient already"
    )


def _help(defect: Defect) -> str:
    return f"leave `{defect.axis}` out of the group, or divide by its size"
