"""missing-gradient-reduction: a weight is updated with the gradient of one rank."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.lifecycle import unreduced
from tvlint.analyses.relations.findings import noted_late
from tvlint.analyses.relations.scales import place_of
from tvlint.analyses.relations.unreduced_gradients import unreduced_gradients
from tvlint.rule import Sighting


def check(facts: Facts) -> Iterator[Sighting]:
    """Yield weights that are updated while their gradient is partial over an axis; not sure where the plan ends with backward,
    since the loop around it may reduce what it leaves.
    """
    for found in unreduced_gradients(facts):
        if found.has == "differs" and noted_late(facts):
            continue
        summed = found.part if found.has == "made" else found.name
        about = (summed, found.weight) if found.has in ("left", "open") else (found.weight, summed)
        words = {"name": found.name, "weight": found.weight, "axis": found.axis, "part": found.part}
        yield Sighting(
            place_of(facts, found.operator),
            found.ranks,
            words,
            about=(*about, found.axis),
            case=found.has,
            is_sure=found.has != "open",
        )
    for each in unreduced(facts.plan):
        weight, axis = each.weights[0], facts.plan.replication.axis
        more = f" (and {len(each.weights) - 1} more)" if len(each.weights) > 1 else ""
        words = {"weight": weight, "more": more, "axis": axis, "ranks": facts.who(each.ranks)}
        place, ranks = facts.place(*each.produced), facts.fold.everywhere(each.ranks)
        yield Sighting(place, ranks, words, about=(weight, axis), case="replicas")
