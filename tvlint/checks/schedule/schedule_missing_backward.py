"""schedule-missing-backward: a pipeline stage that runs a micro-batch forward, but not wholly backward."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.coverage import FaultKind
from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.findings import coverage
from tvlint.findings import Finding
from tvlint.rule import Rule

_SENTENCES = {
    FaultKind.NO_BACKWARD: "{stages} never runs {micro_batches} backward",
    FaultKind.NO_INPUT_GRADIENT: "{stages} computes the weight gradient of {micro_batches}, but never the input gradient",
    FaultKind.NO_WEIGHT_GRADIENT: "{stages} computes the input gradient of {micro_batches}, but never the weight gradient",
}


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield micro-batches without a backward, or with a half of it, on a pipeline stage."""
    help = "add `B`, or both `I` and `W`"
    yield from coverage(facts, rule, _SENTENCES, help)
