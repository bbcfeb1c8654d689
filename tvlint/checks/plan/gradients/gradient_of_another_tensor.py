"""gradient-of-another-tensor: the gradient of one operand is used for another."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.swapped_gradients import misused_gradients
from tvlint.analyses.relations.scales import mistaken_steps, place_of
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Backward operators that take, or give, a gradient at the place of another tensor."""
    for found in misused_gradients(facts.plan):
        what = f"backward gives the gradient of `{found.tensor}` as `{found.gradient}`, which is that of `{found.owner}`"
        if not found.stored:
            what = f"the backward of `{found.tensor}` starts with `{found.gradient}`, the gradient of `{found.owner}`"
        yield rule.finding(
            what,
            facts.place(found.segment, found.index),
            f"use the gradient of `{found.tensor}` here, and look where `{found.gradient}` should go",
            ranks=facts.fold.everywhere(found.ranks),
            about=(found.tensor, found.gradient, found.owner),
        )
    for step, owner in mistaken_steps(facts):
        yield rule.finding(
            f"`{step.weight}` is updated with `{step.name}`, which is made of the gradient of `{owner}`",
            place_of(facts, step.operator),
            f"update `{step.weight}` with its own gradient",
            ranks=facts.fold.everywhere((step.rank,)),
            about=(step.weight, step.name, owner),
        )
