"""unbalanced-backward: a micro-batch has a forward without its backward, or two."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.run_counts import backward_again, uneven_backwards
from tvlint.analyses.gradients.missing_per_micro_batch import LeftOut, left_out, unused
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
    for again in backward_again(facts.plan):
        yield rule.finding(
            f"the backward `{again.segment}` runs {_times(again.times)} for micro-batch {again.micro_batch} on "
            f"{facts.who(again.ranks)}, so that its gradients count more than once",
            facts.start(again.segment),
            "run every backward exactly once for every micro-batch that ran forward",
            ranks=facts.fold.everywhere(again.ranks),
            about=(again.segment,),
        )
    uneven = {name for found in uneven_backwards(facts.plan) for name in (found.segment, found.forward)}
    gaps: dict[tuple[int, tuple[int, ...]], list[LeftOut]] = {}
    for gap in left_out(facts.plan):
        if gap.segment not in uneven:
            gaps.setdefault((gap.micro_batch, gap.ranks), []).append(gap)
    for gap, *others in gaps.values():
        more = f" and {len(others)} more" if others else ""
        yield rule.finding(
            f"no backward for micro-batch {gap.micro_batch} gives the gradient of `{gap.weight}`{more} on "
            f"{facts.who(gap.ranks)}, though those for other micro-batches do",
            facts.place(gap.segment, gap.index),
            "run the backward, and each half of a split one, for every micro-batch that runs forward",
            ranks=facts.fold.everywhere(gap.ranks),
            about=(gap.weight,),
        )
    for spare in unused(facts.plan):
        yield rule.finding(
            f"of the gradients `{spare.name}` that `{spare.segment}` gives on {facts.who(spare.ranks)}, that for micro-batch "
            f"{spare.other} is read, and that for micro-batch {spare.micro_batch} is not",
            facts.start(spare.segment),
            "add up the gradients of all micro-batches, under the name of the gradient of the weight, before they are reduced",
            ranks=facts.fold.everywhere(spare.ranks),
            about=(spare.name, spare.segment),
        )


def _times(count: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(count, f"{count} times")
