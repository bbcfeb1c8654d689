"""missing-gradient-reduction: a weight is updated with the gradient of one rank."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.facts import Facts
from tvlint.analyses.placed import Defect
from tvlint.analyses.placement_findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Weights that are updated while their gradient is partial over an axis."""
    return report(facts, "missing-gradient-reduction", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return f"`{defect.other}` is updated with `{defect.name}`, which is a partial value over `{defect.axis}`"


def _help(defect: Defect) -> str:
    return f"reduce `{defect.name}` over `{defect.axis}` before the update"
