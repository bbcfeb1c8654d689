"""schedule-late-receive: a rank computes before it has received its input."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.findings import each
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield receives that stand after the step that needs them."""
    if not facts.sends:
        return
    late, takers = [], {}
    for message, (_, taker) in facts.messages.needed.items():
        receives = facts.messages.receives.get(message, ())
        if receives and all(step.rank == taker.rank and step.position > taker.position for step in receives):
            late.append(receives[0])
            takers[id(receives[0])] = taker
    yield from each(
        rule,
        late,
        lambda step, more: f"rank {step.rank} runs {takers[id(step)]} before {step}, its input{more}",
        "put the receive before it",
    )
