"""partial-through-nonlinear: a partial sum goes through a nonlinear operator."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Nonlinear operators on values that are partial over an axis."""
    return report(facts, "partial-through-nonlinear", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return f"{defect.operator} is not linear, but its operand `{defect.name}` is a partial value over `{defect.axis}`"


def _help(defect: Defect) -> str:
    return f"reduce `{defect.name}` over `{defect.axis}` first"
