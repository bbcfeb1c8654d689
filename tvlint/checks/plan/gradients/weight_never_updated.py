"""weight-never-updated: a weight gets gradients and no optimizer step."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.optimizer_updates import forgotten, updated_weights
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Weights that are trained but for the step."""
    for found in forgotten(facts.plan, facts.derived("updated weights", lambda: updated_weights(facts.plan))):
        yield Finding(
            rule.name,
            rule.severity,
            f"`{found.weight}` gets a gradient on {facts.who(found.ranks)}, but no optimizer step changes it",
            facts.place(found.segment, found.index),
            f"update `{found.weight}` as the plan does with `{found.other}`, or declare it `frozen`",
            (),
            facts.fold.everywhere(found.ranks),
            about=(found.weight,),
        )
