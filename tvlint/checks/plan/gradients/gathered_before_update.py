"""gathered-before-update: a parameter is used as it was gathered before the optimizer step."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.stale_parameters import stale_gathers
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Uses of gathered parameters after a step that changed their shards."""
    for found in stale_gathers(facts.plan):
        yield Finding(
            rule.name,
            rule.severity,
            f"`{found.name}` holds `{found.weight}` as it was before its update, but is used after it on "
            f"{facts.who(found.ranks)}",
            facts.place(found.segment, found.index),
            f"gather `{found.weight}` after its update",
            (
                Related("it is gathered here", facts.place(*found.gathered)),
                Related("the weight is updated here", facts.place(*found.stepped)),
            ),
            facts.fold.everywhere(found.ranks),
            about=(found.name, found.weight),
        )
