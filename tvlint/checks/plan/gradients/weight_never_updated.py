"""weight-never-updated: a weight gets gradients and no optimizer step."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.master_weights import masters_alone
from tvlint.analyses.gradients.optimizer_updates import forgotten
from tvlint.rule import Sighting


def check(facts: Facts) -> Iterator[Sighting]:
    """Yield weights with gradients that no step changes, in plans that step others or a master copy, each once."""
    alone = {master.weight: master for master in masters_alone(facts)}
    for weight, master in alone.items():
        words = {"weight": weight, "state": master.state, "ranks": facts.who(master.ranks)}
        place, ranks = facts.place(master.segment, master.index), facts.fold.everywhere(master.ranks)
        yield Sighting(place, ranks, words, about=(weight, master.state), case="master")
    for lost in forgotten(facts):
        if lost.weight not in alone:
            words = {"weight": lost.weight, "other": lost.other, "ranks": facts.who(lost.ranks)}
            place, ranks = facts.place(lost.segment, lost.index), facts.fold.everywhere(lost.ranks)
            yield Sighting(place, ranks, words, about=(lost.weight,), case="beside")
