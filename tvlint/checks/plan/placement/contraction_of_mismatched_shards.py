"""contraction-of-mismatched-shards: a contraction has one side sharded and the other whole."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Contractions of which only one operand is split over an axis."""
    return report(facts, "contraction-of-mismatched-shards", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return (
        f"{defect.operator} sums over a dimension that `{defect.name}` splits over "
        f"`{defect.axis}` and `{defect.other}` does not"
    )


def _help(defect: Defect) -> str:
    return f"split both operands over `{defect.axis}`, or gather the one that is split"
