"""wrong-gradient-scale: a weight is updated with a multiple of its gradient."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.expert_scales import expert_shares
from tvlint.analyses.placement.findings import of_rule, report
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Gradients whose divisions on the way do not fit the ranks and micro-batches that were added up, and gradients of experts
    that are divided otherwise than those of the weights that all ranks share."""
    told = set()
    for defect, finding in zip(of_rule(facts, "wrong-gradient-scale"), report(facts, rule, _message, _help), strict=True):
        told.add(defect.other)
        yield finding
    for found in expert_shares(facts):
        if found.weight in told or found.other in told:
            continue
        yield Finding(
            rule.name,
            rule.severity,
            f"the gradient of expert `{found.weight}` is divided by {found.divisor}, that of "
            f"`{found.other}` by {found.right}: experts have seen the tokens of all ranks of `{found.axis}`",
            facts.place(found.segment, found.index),
            f"divide the gradients of experts by {found.right} too",
            (),
            facts.fold.everywhere(facts.ranks_running(found.segment)),
        )


def _message(defect: Defect) -> str:
    if defect.wants:
        return (
            f"`{defect.other}` is updated with {defect.has} the gradient of the loss, if `{defect.wants}` is updated with "
            "that: their gradients are divided differently"
        )
    return (
        f"`{defect.other}` is updated with {defect.has} the gradient of the mean loss: the divisions of `{defect.name}` "
        "and of the loss do not fit the ranks and micro-batches that are added up"
    )


def _help(_: Defect) -> str:
    return "divide once by the ranks that share the batch and once by the micro-batches, in the loss or in the reduction"
