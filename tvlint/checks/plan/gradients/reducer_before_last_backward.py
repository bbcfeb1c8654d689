"""reducer-before-last-backward: gradients are reduced before they are complete."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.lifecycle import Early, early
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield reducers that a later backward of the same step adds to; once per reducer."""
    found: dict[tuple[str, int], list[Early]] = {}
    for each_early in early(facts):
        if each_early.kind == "reduce":
            found.setdefault((each_early.segment, each_early.index), []).append(each_early)
    for (segment, index), weights in found.items():
        first = weights[0]
        more = f" (and {len(weights) - 1} more)" if len(weights) > 1 else ""
        run = f" of micro-batch {first.micro_batch}" if first.micro_batch >= 0 and facts.plan.micro_batches > 1 else ""
        yield rule.finding(
            f"the gradient of `{first.weight}`{more} is reduced on {facts.who(first.ranks)} "
            f"before the backward{run} adds to it",
            facts.place(segment, index),
            "reduce after the last backward that produces the gradient",
            (Related("it is still produced here", facts.place(*first.later)),),
            facts.fold.everywhere(first.ranks),
            about=(first.weight,),
        )
