"""loss-over-shards: a loss sees a shard of the classes."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Losses along a dimension that is split over an axis."""
    return report(facts, "loss-over-shards", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return f"{defect.operator} sees only a shard of the classes: `{defect.name}` is split over `{defect.axis}`"


def _help(defect: Defect) -> str:
    return f"gather the logits over `{defect.axis}`, or use a vocabulary-parallel cross-entropy"
