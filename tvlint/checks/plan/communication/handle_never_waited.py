"""handle-never-waited: an asynchronous operator that nobody knows the end of."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Handles that are issued and never waited for; a value that is read without the wait is `missing-wait`."""
    unread = {hazard.other for hazard in facts.hazards if hazard.kind.endswith("in-flight")}
    for hazard in facts.hazards:
        if hazard.kind == "never-waited" and (hazard.segment, hazard.index) not in unread:
            yield Finding(
                rule.name,
                rule.severity,
                f"`{hazard.name}` is issued on {facts.who(hazard.ranks)} and never waited for",
                facts.place(hazard.segment, hazard.index),
                f"wait for `{hazard.name}` before its buffers are used again, at the latest before the step ends",
                (),
                facts.fold.everywhere(hazard.ranks),
                about=(hazard.name,),
            )
