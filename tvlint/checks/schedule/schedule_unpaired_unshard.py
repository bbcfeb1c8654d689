"""schedule-unpaired-unshard: unshard and reshard of a pipeline stage do not alternate."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.findings import each
from tvlint.analyses.schedule.steps import Step
from tvlint.findings import Finding
from tvlint.rule import Rule

HELP = "let `UNSHARD` and `RESHARD` of a pipeline stage alternate"


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Unshards of what is whole, reshards of what is sharded, and pipeline stages that stay whole."""
    for steps, says in (
        (facts.unshards.repeated, "comes while the pipeline stage is unsharded already"),
        (facts.unshards.needless, "comes while the pipeline stage is not unsharded"),
        (facts.unshards.left, "is never followed by a reshard: the next step unshards the pipeline stage again"),
    ):

        def say(step: Step, more: str, says: str = says) -> str:
            return f"{step} of rank {step.rank} {says}{more}"

        yield from each(rule, steps, say, HELP)
