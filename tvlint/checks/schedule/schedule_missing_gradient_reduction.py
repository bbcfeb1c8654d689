"""schedule-missing-gradient-reduction: the gradients of a pipeline stage are never reduced."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Pipeline stages without a reduction, in schedules that reduce others."""
    for step in facts.reductions.missing:
        yield rule.finding(
            f"the gradients of pipeline stage {step.stage} are never reduced on rank {step.rank}",
            step.location,
            f"add `{step.stage}REDUCE_GRAD` after {step}",
            ranks=(step.rank,),
        )
