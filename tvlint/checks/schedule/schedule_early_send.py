"""schedule-early-send: a result is sent before it is computed."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.findings import each
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield sends that stand before the step that computes what they send."""
    if not facts.sends:
        return
    early, givers = [], {}
    for message, (giver, _) in facts.messages.needed.items():
        sends = facts.messages.sends.get(message, ())
        for send in sends:
            if send.rank == giver.rank and send.position < giver.position:
                early.append(send)
                givers[id(send)] = giver
    yield from each(
        rule,
        early,
        lambda step, more: f"rank {step.rank} runs {step} before {givers[id(step)]}, which computes what it sends{more}",
        "put the send after it",
    )
