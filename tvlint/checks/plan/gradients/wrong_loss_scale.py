"""wrong-loss-scale: the loss is another multiple of the mean than it should be."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Losses whose denominator counts the elements of some ranks only, or counts ranks twice."""
    return report(facts, "wrong-loss-scale", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return (
        f"loss `{defect.name}` is {defect.has} the mean of `{defect.other}`, which is split over ranks: its denominators do "
        "not count every element once"
    )


def _help(_: Defect) -> str:
    return "divide a sum over all ranks by the elements of all ranks, or average means of equal shards over the ranks"
