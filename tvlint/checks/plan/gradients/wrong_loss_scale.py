"""wrong-loss-scale: the loss is another multiple of the mean than it should be."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.relations.scales import multiples
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Losses that are complete on every rank and a multiple of the mean by sizes of axes."""
    for found in multiples(facts):
        if not found.weight:
            yield rule.finding(
                f"loss `{found.name}` is {found.times} the mean: its denominators do not count every element once",
                found.place,
                "divide a sum over all ranks by the elements of all ranks, or average means of equal shards over the ranks",
                ranks=found.ranks,
                about=(found.name,),
            )
