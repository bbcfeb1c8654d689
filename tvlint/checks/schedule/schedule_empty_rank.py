"""schedule-empty-rank: a row without an action."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield rows in which nothing is computed."""
    empty = [rank for rank, row in enumerate(facts.rows) if not any(step.computes for step in row)]
    for rank in empty[:20]:
        row = facts.schedule.ranks[rank]
        holds = "holds nothing that is computed" if row.actions else "is blank"
        yield rule.finding(
            f"the row of rank {rank} {holds}",
            row.location,
            "delete the row, or give the rank its pipeline stages; each row is a rank, the first one rank 0",
            ranks=(rank,),
        )
