"""schedule-unmatched-wait: a wait for what was not issued before it."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.findings import each
from tvlint.analyses.schedule.messages import Message
from tvlint.analyses.schedule.steps import Step
from tvlint.findings import Finding
from tvlint.ir.schedule import ActionKind
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Waits that no open send or gradient reduction stands before."""
    loose = [step for step in facts.waits.loose if not _lacks_send(facts, step)]
    yield from each(
        rule,
        loose,
        lambda step, more: f"{step} of rank {step.rank} waits for nothing: it is not open there{more}",
        "put it once after what it waits for",
    )


def _lacks_send(facts: ScheduleFacts, step: Step) -> bool:
    """Return whether somebody receives what the wait is for, so that the send is what is missing."""
    if step.kind is ActionKind.WAIT_REDUCE_GRADIENT:
        return False
    message = Message(step.kind is ActionKind.WAIT_SEND_FORWARD, step.stage, step.micro_batch)
    return message not in facts.messages.sends and message in facts.messages.receives
