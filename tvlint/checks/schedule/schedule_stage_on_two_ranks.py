"""schedule-stage-on-two-ranks: an action stands on a rank that does not have its pipeline stage."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.findings import each
from tvlint.analyses.schedule.steps import Step
from tvlint.findings import Finding
from tvlint.ir.ranks import describe
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield actions away from the rank that runs most of their pipeline stage."""

    def say(step: Step, more: str) -> str:
        home = facts.placement.rank(step.stage, step.micro_batch)
        where = describe(facts.placement.ranks_of(step.stage) if home is None else (home,))
        return f"{step} stands on rank {step.rank}, but pipeline stage {step.stage} is on {where}{more}"

    yield from each(
        rule,
        facts.placement.misplaced,
        say,
        "move it to that rank's row, or write the pipeline stage that is meant",
    )
