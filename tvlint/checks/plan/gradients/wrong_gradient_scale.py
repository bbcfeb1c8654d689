"""wrong-gradient-scale: a weight is updated with a multiple of its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.expert_scales import expert_shares
from tvlint.analyses.relations.scales import multiples
from tvlint.findings import Finding, Severity
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
            what = f"its gradient, and `{multiple.other}` with its whole gradient: the two are divided differently"
        help = "divide once by the ranks that share the batch and once by the micro-batches, in the loss or in the reduction"
        if multiple.factor.denominator == 1:
            help = f"divide the loss or the gradient by {multiple.factor} more: {help}"
        elif multiple.factor.numerator == 1:
            help = f"divide the loss or the gradient by {multiple.factor.denominator} less: {help}"
        if multiple.other:
            help = "sum gradients over ranks that have parts of them, average over ranks with batches, and divide all alike"
        if multiple.scaled:
            what = f"the gradient of the loss: backward starts from a multiple, which `{multiple.name}` does not undo"
            help = "divide the gradient by the loss scale before the update, once"
        if multiple.bounded:
            what = "the gradient of the loss where that is clipped: backward starts from a multiple, which is undone only after"
            help = "divide the gradients by the loss scale before they are clipped"
        if multiple.may_be_meant:
            help = "leave out the division, or ignore this where the gradient is meant to be less"
        found = rule.finding(
            f"`{multiple.weight}` is updated with {multiple.times} {what}",
            multiple.place,
            help,
            (),
            multiple.ranks,
            about=(multiple.weight, multiple.other or multiple.name),
        )
        yield replace(found, severity=Severity.WARNING) if multiple.may_be_meant else found
    for share in expert_shares(facts):
        if share.weight in reported or share.other in reported:
            continue
        yield rule.finding(
            f"the gradient of expert `{share.weight}` is divided by {share.divisor}, that of "
            f"`{share.other}` by {share.right}: experts have seen the tokens of all ranks of `{share.axis}`",
            facts.place(share.segment, share.index),
            f"divide the gradients of experts by {share.right} too",
            ranks=facts.fold.everywhere(facts.ranks_running(share.segment)),
            about=(share.weight, share.other, share.axis),
        )
