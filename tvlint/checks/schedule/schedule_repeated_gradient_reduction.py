"""schedule-repeated-gradient-reduction: the gradients of a pipeline stage are reduced twice."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.findings import each
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield reductions of a pipeline stage after its first one."""
    yield from each(
        rule,
        facts.reductions.repeated,
        lambda step, more: f"{step} of rank {step.rank} reduces gradients that were reduced already{more}",
        "keep the one after the last backward",
    )
