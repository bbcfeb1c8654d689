"""missing-gradient-reduction: a weight is updated with the gradient of one rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.lifecycle import unreduced
from tvlint.analyses.relations.findings import noted_late
from tvlint.analyses.relations.scales import place_of
from tvlint.analyses.relations.unreduced_gradients import Unreduced, unreduced_gradients
from tvlint.rule import Sighting


def check(facts: Facts) -> Iterator[Sighting]:
    """Yield weights that are updated while their gradient is partial over an axis; not sure where the plan ends with backward,
    since the loop around it may reduce what it leaves.
    """
    for found, count in _each_once(unreduced_gradients(facts)):
        if found.has == "differs" and noted_late(facts):
            continue
        summed = found.part if found.has == "made" else found.name
        about = (summed, found.weight) if found.has == "left" else (found.weight, summed)
        words = {"name": found.name, "weight": found.weight, "axis": found.axis, "part": found.part, "more": _more(count)}
        yield Sighting(
            place_of(facts, found.operator),
            found.ranks,
            words,
            about=(found.axis,) if found.has == "open" else (*about, found.axis),
            case=found.has,
            is_sure=found.has != "open",
        )
    for each in unreduced(facts.plan):
        weight, axis = each.weights[0], facts.plan.replication.axis
        words = {"weight": weight, "more": _more(len(each.weights)), "axis": axis, "ranks": facts.who(each.ranks)}
        place, ranks = facts.place(*each.produced), facts.fold.everywhere(each.ranks)
        yield Sighting(place, ranks, words, about=(weight, axis), case="replicas")


def _each_once(found: Iterable[Unreduced]) -> Iterator[tuple[Unreduced, int]]:
    """Yield the gradients that are not reduced, with how many these are: those that are made of one part of a sum once, and
    those once that the loop around the plan may add up over an axis.
    """
    alike: dict[tuple[str, int, str], list[Unreduced]] = {}
    for each in found:
        if each.has in ("made", "open"):
            alike.setdefault((each.has, id(each.operator) if each.has == "made" else 0, each.axis), []).append(each)
        else:
            yield each, 1
    for first, *others in alike.values():
        ranks = {rank for each in (first, *others) for rank in each.ranks}
        yield replace(first, ranks=tuple(sorted(ranks))), 1 + len(others)


def _more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""
