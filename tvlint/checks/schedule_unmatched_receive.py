"""schedule-unmatched-receive: a message is received more often than it is sent."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule_facts import ScheduleFacts
from tvlint.analyses.schedule_findings import each
from tvlint.analyses.schedule_messages import message_of
from tvlint.analyses.schedule_steps import Step
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: ScheduleFacts) -> Iterator[Finding]:
    """Receives without a send."""
    found = facts.messages
    loose = [step for message, taken in found.receives.items() for step in taken[len(found.sends.get(message, ())) :]]
    ordered = sorted(loose, key=lambda step: (step.rank, step.position))

    def say(step: Step, more: str) -> str:
        message = message_of(step)
        again = message is not None and found.sends.get(message)
        what = "receives what was received already" if again else f"has no `{message.send if message else ''}`"
        return f"{step} of rank {step.rank} {what}{more}"

    help = "add the send on the other rank, or delete the receive"
    yield from each("schedule-unmatched-receive", SEVERITY, ordered, say, help)
