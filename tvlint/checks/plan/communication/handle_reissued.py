"""handle-reissued: a collective takes a handle on which another one is still under way."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Handles that are issued again before they were waited for."""
    for hazard in facts.hazards:
        if hazard.kind != "reissued":
            continue
        related = () if hazard.other is None else (Related("the one still under way", facts.place(*hazard.other)),)
        yield Finding(
            rule.name,
            rule.severity,
            f"`{hazard.name}` is issued again on {facts.who(hazard.ranks)} before it was waited for",
            facts.place(hazard.segment, hazard.index),
            f"wait for `{hazard.name}` first, or give this collective a handle of its own",
            related,
            facts.fold.everywhere(hazard.ranks),
            about=(hazard.name,),
        )
