"""schedule-message-without-peer: a send or receive whose other end is nowhere, or on the same rank."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.findings import each
from tvlint.analyses.schedule.steps import Step
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield messages beyond the first or last pipeline stage, and messages of a rank to itself."""
    ends = {id(step): message for step, message in facts.messages.without_peer}

    def say(step: Step, more: str) -> str:
        message = ends[id(step)]
        other = message.source if "RECV" in step.kind.value else message.destination
        if 0 <= other < facts.extent.stages:
            return f"{step} of rank {step.rank} is a message to itself: pipeline stage {other} is on the same rank{more}"
        return f"{step} of rank {step.rank} is a message with pipeline stage {other}, which does not exist{more}"

    steps = [step for step, _ in facts.messages.without_peer]
    yield from each(rule, steps, say, "delete it")
