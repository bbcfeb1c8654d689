"""gather-of-partial: partial sums are put side by side instead of added."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Gathers and all-to-all exchanges of values that are partial over the axis."""
    return report(facts, "gather-of-partial", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return f"{defect.operator} puts the partial values `{defect.name}` of `{defect.axis}` side by side; they are to be added"


def _help(defect: Defect) -> str:
    return f"all-reduce or reduce-scatter `{defect.name}` over `{defect.axis}`"
