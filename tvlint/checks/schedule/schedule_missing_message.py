"""schedule-missing-message: a rank needs what another one computes, and nobody sends it."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.messages import Message
from tvlint.analyses.schedule.steps import numbered
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield messages that are needed and neither sent nor received, once per pipeline stage and direction."""
    if not facts.sends:
        return
    found = facts.messages
    absent: dict[tuple[bool, int], list[Message]] = {}
    for message in found.needed:
        if message not in found.sends and message not in found.receives:
            absent.setdefault((message.forward, message.source), []).append(message)
    for (forward, _), messages in absent.items():
        message = messages[0]
        giver, taker = found.needed[message]
        what = "output" if forward else "gradient"
        yield rule.finding(
            f"{taker} of rank {taker.rank} needs the {what} of {giver} of rank {giver.rank}, which is never sent "
            f"({numbered('micro-batch', (other.micro_batch for other in messages))})",
            taker.location,
            f"add `{message.send}` after {giver} and `{message.receive}` before {taker}",
            (Related(f"{giver} stands here", giver.location),),
            (giver.rank, taker.rank),
        )
