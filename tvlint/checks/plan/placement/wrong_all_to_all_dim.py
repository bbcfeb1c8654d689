"""wrong-all-to-all-dim: all-to-all joins another dimension than the sharded one."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """All-to-all exchanges whose joined dimension is not the one that is sharded."""
    return report(facts, "wrong-all-to-all-dim", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return (
        f"{defect.operator} joins `{defect.name}` along another dimension than it is "
        f"split over `{defect.axis}`: it is {defect.has}"
    )


def _help(_: Defect) -> str:
    return "concatenate along the dimension that is sharded, and split the other"
