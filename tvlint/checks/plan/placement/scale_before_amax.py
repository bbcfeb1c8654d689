"""scale-before-amax: a tensor is quantised with a scale that its own amax updates only afterwards."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.precision import stale_scales
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Quantisations that come before the scale of the same tensor is computed from its amax."""
    for found in stale_scales(facts.plan):
        yield Finding(
            rule.name,
            rule.severity,
            f"`{found.name}` is quantised with `{found.scale}` before its amax has updated the scale on "
            f"{facts.who(found.ranks)}",
            facts.place(found.segment, found.index),
            "compute the amax, reduce it over the ranks and update the scale first, or take the scale from a history of steps",
            (Related("the scale is made from the amax here", facts.place(*found.later)),),
            facts.fold.everywhere(found.ranks),
            about=(found.name, found.scale),
        )
