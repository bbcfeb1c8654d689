"""norm-over-shards: normalisation sees a shard."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Normalisations along a dimension that is split over an axis."""
    return report(facts, "norm-over-shards", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return f"{defect.operator} normalises only a shard: its dimension of `{defect.name}` is split over `{defect.axis}`"


def _help(defect: Defect) -> str:
    return f"gather `{defect.name}` over `{defect.axis}` first, or reduce the statistics over `{defect.axis}`"
