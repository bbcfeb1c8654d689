"""schedule-missing-wait: a send or gradient reduction without a wait."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.findings import each
from tvlint.analyses.schedule.steps import Step
from tvlint.analyses.schedule.waits import WAITS
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Issues without a later wait, in schedules that spell their waits out."""
    unwaited = [step for step in facts.waits.open if not _explained(facts, step)]

    def say(step: Step, more: str) -> str:
        issued = str(step.action).removeprefix(str(step.stage))
        return f"no `{step.stage}WAIT_{issued}` follows {step} on rank {step.rank}{more}"

    yield from each(rule, unwaited, say, "add the wait after it")


def _explained(facts: ScheduleFacts, step: Step) -> bool:
    """Return whether the wait is probably there with a wrong number, which another rule reports."""
    kinds = [wait for wait, issue in WAITS.items() if issue is step.kind]
    return facts.strays_for(kinds, step.stage, step.micro_batch, step.rank) > 0
