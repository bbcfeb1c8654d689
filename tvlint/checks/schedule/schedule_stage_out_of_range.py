"""schedule-stage-out-of-range: an action on a pipeline stage that does not exist."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.findings import each
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield actions on pipeline stages beyond the last one that is really run."""
    last = facts.extent.stages - 1
    yield from each(
        rule,
        facts.extent.stray_stages,
        lambda step, more: f"{step} is about pipeline stage {step.stage}, but the last one is {last}{more}",
        "write the pipeline stage that is meant",
    )
