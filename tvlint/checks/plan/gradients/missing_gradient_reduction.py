"""missing-gradient-reduction: a weight is updated with the gradient of one rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.lifecycle import unreduced
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import of_rule, report
from tvlint.findings import Finding, Severity
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Weights that are updated while their gradient is partial over an axis; only a warning where the plan ends with backward,
    since the loop around it may reduce what it leaves."""
    findings = report(facts, rule, _message, _help)
    for defect, finding in zip(of_rule(facts, "missing-gradient-reduction"), findings, strict=True):
        yield finding if defect.has != "open" else replace(finding, severity=Severity.WARNING)
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


def _message(defect: Defect) -> str:
    if defect.has == "open":
        return "`{name}`, the gradient of `{other}`, is a partial value over `{axis}` where the plan ends"
    if defect.has == "left" or defect.operator == "invariant":
        return "`{name}`, the gradient of `{other}`, stays a partial value over `{axis}`"
    what = "differs between the ranks of" if defect.has == "?" else "is a partial value over"
    return "`{other}` is updated with `{name}`, which " + what + " `{axis}`"


def _help(defect: Defect) -> str:
    if defect.has == "open":
        return "let the loop that runs the plan reduce it over `{axis}`, or write that reduction into the plan"
    return "reduce `{name}` over `{axis}` before the update"
