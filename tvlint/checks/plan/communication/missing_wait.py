"""missing-wait: a value is read while it is still under way."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Reads of what an asynchronous operator has not finished writing."""
    for hazard in facts.hazards:
        if hazard.kind != "read-in-flight" or hazard.other is None:
            continue
        issue = facts.plan.segments[hazard.other[0]].operators[hazard.other[1]]
        handle = getattr(issue, "handle", "")
        yield Finding(
            rule.name,
            rule.severity,
            f"`{hazard.name}` is read before `{handle}` is waited for on {facts.who(hazard.ranks)}",
            facts.place(hazard.segment, hazard.index),
            f"wait for `{handle}` before this operator",
            (Related(f"`{handle}` is issued here", facts.place(*hazard.other), leads=True),),
            facts.fold.everywhere(hazard.ranks),
            about=(hazard.name, handle),
        )
