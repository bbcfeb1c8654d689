"""wrong-shape-claim: a result has another shape than the plan says."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.declared_shapes import unexplained
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Results whose stated local shape their operator cannot give, where nothing is said of their placement there."""
    for found in unexplained(facts):
        yield Finding(
            rule.name,
            rule.severity,
            f"{found.called} gives `{found.name}` the shape {list(found.given)}, but the plan says {list(found.stated)}",
            facts.place(found.segment, found.index),
            "state the shape that a rank holds, or add the exchange that is missing between the two",
            (),
            facts.fold.everywhere(facts.ranks_running(found.segment)),
            about=(found.name,),
        )
