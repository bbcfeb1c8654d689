"""broadcast-of-partial: one partial sum is sent to all ranks."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Broadcasts of a value that is partial over the axis."""
    return report(facts, "broadcast-of-partial", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return f"{defect.operator} sends the root's part of `{defect.name}`, a partial value over `{defect.axis}`, to all ranks"


def _help(defect: Defect) -> str:
    return f"all-reduce `{defect.name}` over `{defect.axis}` instead"
