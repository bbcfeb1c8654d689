"""schedule-missing-forward: a pipeline stage that never runs a micro-batch forward."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.coverage import FaultKind
from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.findings import coverage
from tvlint.findings import Finding
from tvlint.rule import Rule

_SENTENCES = {FaultKind.NO_FORWARD: "{stages} never runs {micro_batches} forward"}


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield micro-batches without a forward on a pipeline stage."""
    help = "add the forward; every pipeline stage runs every micro-batch once"
    yield from coverage(facts, rule, _SENTENCES, help)
