"""choice-over-shards: the greatest elements of a shard are taken for those of the whole dimension."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Argmax, top-k and sorting along a dimension that is split over an axis, where ranks never compare what they found."""
    return report(facts, "choice-over-shards", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return f"{defect.operator} compares only a shard: its dimension of `{defect.name}` is split over `{defect.axis}`"


def _help(defect: Defect) -> str:
    return f"gather `{defect.name}` over `{defect.axis}`, or gather what every rank of `{defect.axis}` found and compare that"
