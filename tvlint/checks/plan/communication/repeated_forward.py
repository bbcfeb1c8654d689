"""repeated-forward: a forward runs twice for one micro-batch."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.run_counts import repeated
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Forward segments that are not recomputed and run more than once for a micro-batch; once per segment and ranks."""
    seen = set()
    for found in repeated(facts.plan):
        if (found.segment, found.ranks) in seen:
            continue
        seen.add((found.segment, found.ranks))
        yield Finding(
            rule.name,
            rule.severity,
            f"`{found.segment}` runs {found.times} times for micro-batch {found.micro_batch} on {facts.who(found.ranks)}",
            facts.start(found.segment),
            "run every forward once for every micro-batch; mark it `checkpointed` if it is recomputed",
            (),
            facts.fold.everywhere(found.ranks),
            about=(found.segment,),
        )
