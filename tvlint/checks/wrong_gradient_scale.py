"""wrong-gradient-scale: a weight is updated with a multiple of its gradient."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.facts import Facts
from tvlint.analyses.placed import Defect
from tvlint.analyses.placement_findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Gradients whose divisions on the way do not fit the ranks and micro-batches that were added up."""
    return report(facts, "wrong-gradient-scale", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return (
        f"`{defect.other}` is updated with {defect.has} the gradient of the mean loss: the divisions of `{defect.name}` "
        "and of the loss do not fit the ranks and micro-batches that are added up"
    )


def _help(_: Defect) -> str:
    return "divide once by the ranks that share the batch and once by the micro-batches, in the loss or in the reduction"
