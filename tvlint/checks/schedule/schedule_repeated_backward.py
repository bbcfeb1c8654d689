"""schedule-repeated-backward: a pipeline stage that runs a micro-batch backward twice."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.coverage import FaultKind
from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.findings import coverage
from tvlint.findings import Finding
from tvlint.rule import Rule

_SENTENCES = {FaultKind.REPEATED_BACKWARD: "{stages} runs {micro_batches} backward more than once"}


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield micro-batches with more than `B`, or `I` and `W`, on a pipeline stage."""
    help = "`B` is the whole backward: keep either `B`, or one `I` and one `W`"
    yield from coverage(facts, rule, _SENTENCES, help)
