"""wrong-reduce-op: a partial value is reduced with another operation than it needs."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.extremes import extremes_of_gradients
from tvlint.analyses.gradients.lifecycle import averaged
from tvlint.rule import Sighting


def check(facts: Facts) -> Iterator[Sighting]:
    """Yield averages of gradients that are parts of one sum, and the greatest or least of gradients."""
    for found in averaged(facts):
        words = {"weight": found.weight, "first": facts.who(found.first), "second": facts.who(found.second)}
        ranks = facts.fold.everywhere(tuple(sorted({*found.first, *found.second})))
        yield Sighting(facts.place(*found.update), ranks, words, about=(found.weight,), case="averaged")
    for extreme in extremes_of_gradients(facts.plan):
        ranks, kind = facts.ranks_running(extreme.segment), "greatest" if extreme.reduce == "max" else "least"
        words = {"kind": kind, "name": extreme.name, "ranks": facts.who(ranks)}
        place, everywhere = facts.place(extreme.segment, extreme.index), facts.fold.everywhere(ranks)
        yield Sighting(place, everywhere, words, about=(extreme.name,), case="extreme")
