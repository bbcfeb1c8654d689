"""schedule-unmatched-send: a message is sent more often than it is received."""

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
    """Yield sends without a receive, and sends of what was sent before."""
    found = facts.messages
    loose = []
    for message, sends in found.sends.items():
        receives = len(found.receives.get(message, ()))
        loose += sends[max(1, receives) if receives == len(sends) else receives :]
    loose = [step for step in loose if not _explained(facts, step)]
    ordered = sorted(loose, key=lambda step: (step.rank, step.position))

    def say(step: Step, more: str) -> str:
        message = message_of(step)
        again = message is not None and found.receives.get(message)
        what = "sends what was sent already" if again else f"has no `{message.receive if message else ''}`"
        return f"{step} of rank {step.rank} {what}{more}"

    yield from each(rule, ordered, say, "add the receive on the other rank, or delete the send")


def _explained(facts: ScheduleFacts, step: Step) -> bool:
    """Return whether the receive is probably there with a wrong number, which another rule reports."""
    message = message_of(step)
    if message is None:
        return False
    kind = ActionKind.RECEIVE_FORWARD if message.forward else ActionKind.RECEIVE_BACKWARD
    rank = facts.placement.rank(message.destination, message.micro_batch)
    return facts.strays_for((kind,), message.destination, message.micro_batch, rank) > 0
