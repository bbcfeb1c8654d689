"""micro-batch-out-of-range: a segment runs for a micro-batch that does not exist."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.run_counts import out_of_range
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Runs for micro-batches beyond the number that the plan states; once per segment."""
    seen = set()
    for found in out_of_range(facts.plan):
        if found.segment in seen:
            continue
        seen.add(found.segment)
        yield Finding(
            rule.name,
            rule.severity,
            f"`{found.segment}` runs for micro-batch {found.micro_batch} on {facts.who(found.ranks)}, but the plan has "
            f"{facts.plan.micro_batches}, counted from 0",
            facts.start(found.segment),
            "run micro-batches that exist, or state how many there are",
            (),
            facts.fold.everywhere(found.ranks),
            about=(found.segment,),
        )
