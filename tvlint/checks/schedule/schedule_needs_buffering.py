"""schedule-needs-buffering: messages cross so that only buffered sends get through."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.order import crossed
from tvlint.findings import Finding, Related
from tvlint.rule import Rule

MAXIMAL_SHOWN = 8


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield the circle in which ranks wait when a send waits for its receive, unless they wait anyway."""
    if not facts.sends or facts.buffered is not None or any(crossed(facts.messages)):
        return
    found = facts.rendezvous
    if found is None:
        return
    waits = found.waits[:MAXIMAL_SHOWN]
    said = "; ".join(f"rank {step.rank} in {step} waits for {need} of rank {need.rank}" for step, need in waits)
    yield rule.finding(
        f"the messages get through only when sends are buffered: {said}",
        waits[0][0].location,
        "give sends and receives the same order on both ranks",
        tuple(Related(f"{need} of rank {need.rank} stands here", need.location) for _, need in waits),
        tuple(sorted({step.rank for step, _ in found.waits})),
    )
