"""schedule-fifo-inversion: messages are received in another order than they are sent."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.order import crossed
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield the first send of each pair of ranks that meets the receive of another message."""
    for (source, destination), send, receive, sent, received in crossed(facts.messages):
        yield rule.finding(
            f"pipeline rank {destination} takes {sent} for {received}: {send} of pipeline rank {source} meets {receive}",
            receive.location,
            f"receive from rank {source} in the order in which it sends",
            (Related(f"{send} stands here", send.location),),
            (source, destination),
        )
