"""schedule-unmatched-wait: a wait for what was not issued before it."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule_facts import ScheduleFacts
from tvlint.analyses.schedule_findings import each
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: ScheduleFacts) -> Iterator[Finding]:
    """Waits that no open send or gradient reduction stands before."""
    yield from each(
        "schedule-unmatched-wait",
        SEVERITY,
        facts.waits.loose,
        lambda step, more: f"{step} of rank {step.rank} waits for nothing: it is not open there{more}",
        "put it once after what it waits for",
    )
