"""reduction-in-lower-precision: ranks are summed in fewer bits than the result is declared with."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.precision import lowered
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Sums over ranks whose operand has fewer bits than what the plan stores the result in."""
    for found in lowered(facts.plan):
        yield Finding(
            rule.name,
            rule.severity,
            f"`{found.name}` is summed over ranks as {found.used}, while `{found.output}` is declared {found.declared}",
            facts.place(found.segment, found.index),
            f"cast to {found.declared} before the reduction, not after",
            (),
            facts.ranks_running(found.segment),
            about=(found.name, found.output),
        )
