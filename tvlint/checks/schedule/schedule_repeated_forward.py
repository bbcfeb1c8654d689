"""schedule-repeated-forward: a pipeline stage that runs a micro-batch forward twice."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.coverage import FaultKind
from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.findings import coverage
from tvlint.findings import Finding
from tvlint.rule import Rule

_SENTENCES = {FaultKind.REPEATED_FORWARD: "{stages} runs {micro_batches} forward more than once"}


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield micro-batches with more than one forward on a pipeline stage."""
    help = "delete the one that is too much, or write the micro-batch that is meant"
    yield from coverage(facts, rule, _SENTENCES, help)
