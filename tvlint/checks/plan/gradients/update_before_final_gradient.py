"""update-before-final-gradient: the optimizer steps with gradients that still change."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.lifecycle import Early, early
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Optimizer steps before the last backward or the reduction of a gradient; once per step."""
    found: dict[tuple[str, int], list[Early]] = {}
    for each_early in early(facts):
        if each_early.kind in ("update", "update-reduce"):
            found.setdefault((each_early.segment, each_early.index), []).append(each_early)
    for (segment, index), weights in found.items():
        first = weights[0]
        more = f" (and {len(weights) - 1} more)" if len(weights) > 1 else ""
        what = "reduced" if first.kind == "update-reduce" else "complete"
        yield rule.finding(
            f"`{first.weight}`{more} is updated on {facts.who(first.ranks)} before its gradient is {what}",
            facts.place(segment, index),
            "run the optimizer after the last backward and after the reduction of its gradients",
            (Related("the gradient is changed here", facts.place(*first.later)),),
            facts.fold.everywhere(first.ranks),
            about=(first.weight,),
        )
