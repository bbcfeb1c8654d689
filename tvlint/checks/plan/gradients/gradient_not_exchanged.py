"""gradient-not-exchanged: a gradient is used on the rank to which the forward pass sent other rows."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.all_to_all_gradients import astray
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """All-to-alls of the forward pass whose gradient no all-to-all brings back."""
    for found in astray(facts):
        yield Finding(
            rule.name,
            rule.severity,
            f"the backward of `{found.value}` starts with `{found.gradient}`, which no all-to-all has brought back",
            facts.place(*found.where),
            f"exchange the gradient the other way round before, as the forward pass exchanges `{found.value}`",
            (Related(f"`{found.value}` goes to other ranks here", facts.place(*found.sent), leads=True),),
            facts.fold.everywhere(found.ranks),
            about=(found.value, found.gradient),
        )
