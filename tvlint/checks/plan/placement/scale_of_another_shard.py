"""scale-of-another-shard: codes of several ranks are read with the scale of one."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.quantisation_scales import foreign_scales
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Operators that read gathered codes with a scale from the own rank's amax."""
    for found in foreign_scales(facts.plan):
        yield Finding(
            rule.name,
            rule.severity,
            f"`{found.codes}` holds codes of several ranks, each with the scale of its own amax, and is read with "
            f"`{found.scale}`, the scale of this rank",
            facts.place(*found.where),
            "let the ranks agree on one amax (`all-reduce max`) before they quantise, or gather the scales too",
            (Related("the codes of other ranks come here", facts.place(*found.joined), leads=True),),
            facts.fold.everywhere(found.ranks),
            about=(found.codes, found.scale),
        )
