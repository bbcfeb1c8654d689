"""reduction-in-lower-precision: ranks are summed in fewer bits than the result is declared with."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.precision import lowered
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Sums over ranks whose operand has fewer bits than what the plan stores the result in."""
    for found in lowered(facts.plan):
        yield Finding(
            "reduction-in-lower-precision",
            SEVERITY,
            f"`{found.name}` is summed over ranks as {found.used}, while `{found.output}` is declared {found.declared}",
            facts.place(found.segment, found.index),
            f"cast to {found.declared} before the reduction, not after",
            (),
            facts.ranks_running(found.segment),
        )
