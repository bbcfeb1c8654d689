"""schedule-compute-on-sharded-stage: a pipeline stage computes while its parameters are sharded."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.findings import each
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Compute steps before the unshard or after the reshard of their pipeline stage."""
    yield from each(
        rule,
        facts.unshards.sharded,
        lambda step, more: f"rank {step.rank} runs {step} while its parameters are sharded{more}",
        "unshard the pipeline stage before it, or reshard it later",
    )
