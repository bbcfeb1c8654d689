"""state-of-another-shard: an optimizer step combines a weight with the state of another shard."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Optimizer steps whose state is another piece than the weight or gradient."""
    return report(facts, "state-of-another-shard", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return (
        f"{defect.operator} takes `{defect.name}` ({defect.has}) and `{defect.other}` ({defect.wants}), which are pieces of "
        "different shards"
    )


def _help(_: Defect) -> str:
    return "let each rank keep the state of the shard that it updates"
