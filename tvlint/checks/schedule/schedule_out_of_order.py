"""schedule-out-of-order: a rank computes something before what it needs."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.steps import words
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Compute steps that do not stand after what they need on their rank, once per pipeline stage and kind."""
    seen = set()
    for pair in facts.inversions:
        early, late = pair.early, pair.late
        key = (early.kind, early.stage, late.kind, late.stage)
        if key in seen:
            continue
        seen.add(key)
        when = "at the same time as" if early.position == late.position else "before"
        owner = "its" if early.stage == late.stage else f"pipeline stage {late.stage}'s"
        yield rule.finding(
            f"pipeline rank {early.rank} runs {early} {when} {late}, {owner} {words(late.kind)}",
            early.location,
            f"put {early} after {late}",
            (Related(f"{late} stands here", late.location),),
            (early.rank,),
        )
