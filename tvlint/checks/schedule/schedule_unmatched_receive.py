"""schedule-unmatched-receive: a message is received more often than it is sent."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.findings import each
from tvlint.analyses.schedule.messages import message_of
from tvlint.analyses.schedule.steps import Step
from tvlint.findings import Finding
from tvlint.ir.schedule import ActionKind
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield receives without a send."""
    found = facts.messages
    loose = [step for message, taken in found.receives.items() for step in taken[len(found.sends.get(message, ())) :]]
    loose = [step for step in loose if not _explained(facts, step)]
    ordered = sorted(loose, key=lambda step: (step.rank, step.position))

    def say(step: Step, more: str) -> str:
        message = message_of(step)
        again = message is not None and found.sends.get(message)
        what = "receives what was received already" if again else f"has no `{message.send if message else ''}`"
        return f"{step} of rank {step.rank} {what}{more}"

    help = "add the send on the other rank, or delete the receive"
    yield from each(rule, ordered, say, help)


def _explained(facts: ScheduleFacts, step: Step) -> bool:
    """Return whether the send is probably there with a wrong number, which another rule reports."""
    message = message_of(step)
    if message is None:
        return False
    kind = ActionKind.SEND_FORWARD if message.forward else ActionKind.SEND_BACKWARD
    rank = facts.placement.rank(message.source, message.micro_batch)
    return facts.strays_for((kind,), message.source, message.micro_batch, rank) > 0
