"""gradient-left-out: backward leaves out one of the gradients of a value."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.lost_gradients import not_passed_on
from tvlint.analyses.gradients.untrained_weights import left_out_on_ranks, untrained
from tvlint.rule import Sighting


def check(facts: Facts) -> Iterator[Sighting]:
    """Yield gradients that are not asked for, of values that backward goes on from, and of those that lead to a weight."""
    seen = set()
    for lost in not_passed_on(facts):
        if not lost.name:
            seen.add((lost.segment, lost.index))
            ranks = facts.ranks_running(lost.segment)
            words = {"result": lost.result, "of": lost.of, "ranks": facts.who(ranks)}
            place, everywhere = facts.place(lost.segment, lost.index), facts.fold.everywhere(ranks)
            yield Sighting(place, everywhere, words, about=(lost.result, lost.of), case="goes-on")
    for found in untrained(facts):
        if (found.segment, found.index) not in seen:
            words = {"result": found.result, "of": found.of, "weight": found.weight}
            place, ranks = facts.place(found.segment, found.index), facts.ranks_running(found.segment)
            about = (found.result, found.of, found.weight)
            yield Sighting(place, facts.fold.everywhere(ranks), words, about=about, case="untrained")
    for each in left_out_on_ranks(facts):
        if (each.segment, each.index) not in seen:
            words = {"result": each.result, "weight": each.weight, "ranks": facts.who(each.ranks)}
            place, everywhere = facts.place(each.segment, each.index), facts.fold.everywhere(each.ranks)
            yield Sighting(place, everywhere, words, about=(each.result, each.weight), case="of-ranks")
