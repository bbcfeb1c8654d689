"""schedule-missing-wait: a send or gradient reduction that nobody waits for."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule_facts import ScheduleFacts
from tvlint.analyses.schedule_findings import each
from tvlint.analyses.schedule_steps import Step
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: ScheduleFacts) -> Iterator[Finding]:
    """Issues without a later wait, in schedules that spell their waits out."""

    def say(step: Step, more: str) -> str:
        issued = str(step.action).removeprefix(str(step.stage))
        return f"no `{step.stage}WAIT_{issued}` follows {step} on rank {step.rank}{more}"

    yield from each("schedule-missing-wait", SEVERITY, facts.waits.open, say, "add the wait after it")
