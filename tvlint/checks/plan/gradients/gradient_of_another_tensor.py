"""gradient-of-another-tensor: the gradient of one value is used for another."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.relations.misused_gradients import misused_gradients
from tvlint.analyses.relations.scales import place_of
from tvlint.rule import Sighting


def check(facts: Facts) -> Iterator[Sighting]:
    """Yield backward operators that take, or give, a gradient at the place of another tensor, and steps with one."""
    for misused in misused_gradients(facts):
        words = {"tensor": misused.tensor, "name": misused.name, "owner": misused.owner}
        words |= dict(zip(("one", "other"), misused.parted, strict=True))
        about, ranks = (misused.tensor, misused.name, misused.owner), facts.fold.everywhere((misused.rank,))
        yield Sighting(place_of(facts, misused.operator), ranks, words, about=about, case=misused.how)
