"""schedule-missing-stage: pipeline stages or micro-batches that nobody runs."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.findings import Finding
from tvlint.rule import Rule

MAXIMAL_GAPS = 20


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Gaps in the numbers of the pipeline stages and of the micro-batches."""
    extent = facts.extent
    for noun, gaps, count in (
        ("pipeline stage", extent.missing_stages, extent.stages),
        ("micro-batch", extent.missing_micro_batches, extent.micro_batches),
    ):
        for first, last in gaps[:MAXIMAL_GAPS]:
            name = "stage" if noun == "pipeline stage" else "micro_batch"
            after = next(step for step in facts.steps if step.computes and getattr(step, name) == last + 1)
            plural = noun + ("es" if noun.endswith("ch") else "s")
            what = f"{noun} {first}" if first == last else f"{plural} {first}-{last}"
            yield rule.finding(
                f"no rank runs {what}, although {after} counts {count} {plural}",
                after.location,
                f"number the {plural} from 0 without gaps",
                ranks=(after.rank,),
            )
