"""missing-gradient-reduction: a weight is updated with the gradient of one rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.lifecycle import unreduced
from tvlint.analyses.relations.findings import noted_late
from tvlint.analyses.relations.scales import place_of
from tvlint.analyses.relations.unreduced_gradients import Unreduced, unreduced_gradients
from tvlint.findings import Finding, Severity
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Weights that are updated while their gradient is partial over an axis; only a warning where the plan ends with backward,
    since the loop around it may reduce what it leaves."""
    for unreduced_gradient in unreduced_gradients(facts):
        if unreduced_gradient.has != "differs" or not noted_late(facts):
            yield _finding(facts, rule, unreduced_gradient)
    for found in unreduced(facts.plan):
        more = f" (and {len(found.weights) - 1} more)" if len(found.weights) > 1 else ""
        axis = facts.plan.replication.axis
        yield rule.finding(
            f"the gradient of `{found.weights[0]}`{more} is not reduced over `{axis}` on {facts.who(found.ranks)}",
            facts.place(*found.produced),
            f"reduce it over `{axis}`, as the plan does with others",
            ranks=facts.fold.everywhere(found.ranks),
            about=(found.weights[0], axis),
        )


def _finding(facts: Facts, rule: Rule, unreduced: Unreduced) -> Finding:
    name, weight, axis = f"`{unreduced.name}`", f"`{unreduced.weight}`", f"`{unreduced.axis}`"
    text, help = f"{name}, the gradient of {weight}, stays a partial value over {axis}", f"reduce {name} over {axis}"
    if unreduced.has in ("stepped", "differs"):
        what = "differs between the ranks of" if unreduced.has == "differs" else "is a partial value over"
        text, help = f"{weight} is updated with {name}, which {what} {axis}", f"{help} before the update"
    elif unreduced.has == "open":
        text = f"{name}, the gradient of {weight}, is a partial value over {axis} where the plan ends"
        help = f"let the loop that runs the plan reduce it over {axis}, or write that reduction into the plan"
    about = (
        (unreduced.weight, unreduced.name, unreduced.axis)
        if unreduced.has in ("stepped", "differs")
        else (unreduced.name, unreduced.weight, unreduced.axis)
    )
    found = rule.finding(text, place_of(facts, unreduced.operator), help, ranks=unreduced.ranks, about=about)
    return found if unreduced.has != "open" else replace(found, severity=Severity.WARNING)
