"""ring-attention-values-not-rotated: keys of one rank are paired with the values of another."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.ring_attention import ring_defects
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Attention steps whose keys and values come from different ranks."""
    for found in ring_defects(facts):
        if found.kind != "values":
            continue
        yield rule.finding(
            f"attention pairs the keys `{found.other}` of rank {found.missing[0]} with the values `{found.name}` of rank "
            f"{found.missing[1]} on {facts.who(found.ranks[:1])}" + (" and others" if len(found.ranks) > 1 else ""),
            facts.place(*found.where),
            "send and receive the values along with the keys",
            ranks=facts.fold.everywhere(found.ranks),
            about=(found.other, found.name),
        )
