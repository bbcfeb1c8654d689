"""double-wait: a handle is waited for after it was already."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Waits for handles of which every issue is already waited for."""
    for hazard in facts.hazards:
        if hazard.kind == "waited-twice" and hazard.other is not None:
            yield Finding(
                rule.name,
                rule.severity,
                f"`{hazard.name}` is waited for again on {facts.who(hazard.ranks)}, though nothing was issued since",
                facts.place(hazard.segment, hazard.index),
                "wait for the handle that is still under way, or remove the second wait",
                (Related(f"`{hazard.name}` is issued here", facts.place(*hazard.other)),),
                facts.fold.everywhere(hazard.ranks),
                about=(hazard.name,),
            )
