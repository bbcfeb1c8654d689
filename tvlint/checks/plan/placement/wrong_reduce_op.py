"""wrong-reduce-op: a partial value is reduced with another operation than it needs."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.extremes import extremes_of_gradients
from tvlint.analyses.gradients.lifecycle import averaged
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield averages of gradients that are parts of one sum, and the greatest or least of gradients."""
    for found in averaged(facts):
        yield rule.finding(
            f"the gradients of `{found.weight}` are averaged over {facts.who(found.first)} and {facts.who(found.second)}, "
            "which use it in different functions",
            facts.place(*found.update),
            "sum them: the gradient of a weight that is used twice is the sum of both",
            ranks=facts.fold.everywhere(tuple(sorted({*found.first, *found.second}))),
            about=(found.weight,),
        )
    for extreme in extremes_of_gradients(facts.plan):
        ranks = facts.ranks_running(extreme.segment)
        kind = "greatest" if extreme.reduce == "max" else "least"
        yield rule.finding(
            f"the {kind} of the gradients `{extreme.name}` on {facts.who(ranks)} is taken in the place of their sum",
            facts.place(extreme.segment, extreme.index),
            "sum the gradients",
            ranks=facts.fold.everywhere(ranks),
            about=(extreme.name,),
        )
