"""schedule-infeasible: ranks wait for each other in a circle."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.findings import Finding, Related
from tvlint.rule import Rule

MAXIMAL_SHOWN = 8


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield the circle in which the schedule stands still even when every send completes at once."""
    found = facts.buffered
    if found is None:
        return
    waits = found.waits[:MAXIMAL_SHOWN]
    said = "; ".join(f"rank {step.rank} in {step} waits for {need} of rank {need.rank}" for step, need in waits)
    first = waits[0][0]
    yield rule.finding(
        f"the schedule stands still: {said}",
        first.location,
        "reorder the row of one of these ranks, so that what the others wait for comes first",
        tuple(Related(f"{need} of rank {need.rank} stands here", need.location) for _, need in waits),
        tuple(sorted({step.rank for step, _ in found.waits})),
    )
