"""schedule-micro-batch-out-of-range: an action on a micro-batch that does not exist."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.findings import each
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield actions on micro-batches beyond the last one that the pipeline stages run."""
    last = facts.extent.micro_batches - 1
    yield from each(
        rule,
        facts.extent.stray_micro_batches,
        lambda step, more: f"{step} is about micro-batch {step.micro_batch}, but the last one is {last}{more}",
        "write the micro-batch that is meant",
    )
