"""schedule-early-gradient-reduction: gradients are reduced before the last backward."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield reductions that a backward of the same pipeline stage follows."""
    for step, last in facts.reductions.early:
        yield rule.finding(
            f"rank {step.rank} runs {step} before {last}, whose gradients it misses",
            step.location,
            "put it after the last `B` or `W` of the pipeline stage",
            (Related("the last backward of the pipeline stage stands here", last.location),),
            (step.rank,),
        )
