"""wrong-gradient-scale: a weight is updated with a multiple of its gradient."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.expert_scales import expert_shares
from tvlint.analyses.relations.scales import multiples
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Gradients whose divisions on the way do not fit the ranks and micro-batches that were added up, and gradients of experts
    that are divided otherwise than those of the weights that all ranks share."""
    reported = set()
    for multiple in multiples(facts):
        if not multiple.weight:
            continue
        reported.add(multiple.weight)
        what = (
            f"the gradient of the mean loss: the divisions of `{multiple.name}` and of the loss do not fit the ranks and "
            "micro-batches that are added up"
        )
        if multiple.other:
            what = (
                f"the gradient of the loss, if `{multiple.other}` is updated with that: their gradients are divided differently"
            )
        help = "divide once by the ranks that share the batch and once by the micro-batches, in the loss or in the reduction"
        if multiple.scaled:
            what = f"the gradient of the loss: backward starts from a multiple, which `{multiple.name}` does not undo"
            help = "divide the gradient by the loss scale before the update, once"
        yield rule.finding(
            f"`{multiple.weight}` is updated with {multiple.times} {what}",
            multiple.place,
            help,
            (),
            multiple.ranks,
            about=(multiple.weight, multiple.other or multiple.name),
        )
    for found in expert_shares(facts):
        if found.weight in reported or found.other in reported:
            continue
        yield rule.finding(
            f"the gradient of expert `{found.weight}` is divided by {found.divisor}, that of "
            f"`{found.other}` by {found.right}: experts have seen the tokens of all ranks of `{found.axis}`",
            facts.place(found.segment, found.index),
            f"divide the gradients of experts by {found.right} too",
            ranks=facts.fold.everywhere(facts.ranks_running(found.segment)),
            about=(found.weight, found.other, found.axis),
        )
