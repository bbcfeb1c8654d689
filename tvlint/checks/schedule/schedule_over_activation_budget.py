"""schedule-over-activation-budget: a rank holds the activations of more micro-batches than it may."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.findings import Finding
from tvlint.ir.ranks import describe
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield the rank that goes furthest beyond the budget."""
    if facts.budget is None:
        return
    over = {
        rank: held
        for rank, peak in facts.peaks.items()
        if (held := facts.placement.micro_batches(rank, peak.chunks)) > facts.budget
    }
    if not over:
        return
    worst = max(over, key=lambda rank: (over[rank], -rank))
    step = facts.peaks[worst].step
    others = f" (over budget: {describe(over)})" if len(over) > 1 else ""
    yield rule.finding(
        f"pipeline rank {worst} holds the activations of {over[worst]:g} micro-batches at {step}, more than the budget of "
        f"{facts.budget}{others}",
        step.location,
        "run backwards earlier, or fewer forwards in the warm-up",
        ranks=tuple(sorted(over)),
    )
