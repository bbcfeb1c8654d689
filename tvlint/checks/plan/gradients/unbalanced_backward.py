"""unbalanced-backward: a micro-batch has a forward without its backward, or two."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.run_counts import uneven_backwards
from tvlint.analyses.gradients.missing_per_micro_batch import left_out
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Micro-batches for which a forward and its backward, or a half of that, run unequally often; once a segment and ranks."""
    seen = set()
    for found in uneven_backwards(facts.plan):
        if (found.segment, found.ranks) in seen:
            continue
        seen.add((found.segment, found.ranks))
        yield rule.finding(
            f"`{found.forward}` runs {_times(found.expected)} for micro-batch {found.micro_batch} on {facts.who(found.ranks)}, "
            f"but its backward `{found.segment}` {_times(found.times)}",
            facts.start(found.segment),
            "run every backward exactly once for every micro-batch that ran forward",
            ranks=facts.fold.everywhere(found.ranks),
            about=(found.forward, found.segment),
        )
    for gap in left_out(facts.plan):
        yield rule.finding(
            f"no backward for micro-batch {gap.micro_batch} gives the gradient of `{gap.weight}` on {facts.who(gap.ranks)}, "
            "though those for other micro-batches do",
            facts.place(gap.segment, gap.index),
            "run the half of the backward that gives the gradients of weights for every micro-batch too",
            ranks=facts.fold.everywhere(gap.ranks),
            about=(gap.weight,),
        )


def _times(count: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(count, f"{count} times")
