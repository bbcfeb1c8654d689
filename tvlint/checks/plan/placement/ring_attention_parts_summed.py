"""ring-attention-parts-summed: attention over different keys is added without its log-sum-exp."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.ring_attention import ring_defects
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Additions of what attention gives for the same queries and different keys."""
    for found in ring_defects(facts):
        if found.kind != "sum":
            continue
        yield Finding(
            rule.name,
            rule.severity,
            f"`{found.name}` and `{found.other}` are attention over different keys, each with a softmax of its own; their sum "
            f"is not attention over both, on {facts.who(found.ranks)}",
            facts.place(*found.where),
            "weight each with the exponential of its log-sum-exp",
            (),
            facts.fold.everywhere(found.ranks),
            about=(found.name, found.other),
        )
