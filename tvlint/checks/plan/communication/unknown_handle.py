"""unknown-handle: a wait for something that was never issued."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Waits for handles that no operator before them issues."""
    for hazard in facts.hazards:
        if hazard.kind == "unknown-handle":
            yield Finding(
                rule.name,
                rule.severity,
                f"`{hazard.name}` is waited for on {facts.who(hazard.ranks)}, but nothing issued it before",
                facts.place(hazard.segment, hazard.index),
                "wait for the handle of the operator that is meant, after it is issued",
                (),
                facts.fold.everywhere(hazard.ranks),
                about=(hazard.name,),
            )
