"""use-before-definition: a value is read where nothing has produced it."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.def_use import of_kinds
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.undefined_uses import Missing, missing, near, unmade
from tvlint.findings import Related
from tvlint.ir.location import Location
from tvlint.ir.operators import Backward
from tvlint.rule import Sighting

_COMPARED = 20
"""So many names of a plan are compared with all others."""


def check(facts: Facts) -> Iterator[Sighting]:
    """Yield reads of what comes later, or never, on the same rank and in the same micro-batch, and results without a maker."""
    ranks: dict[tuple[Location, str], set[int]] = {}
    first: dict[tuple[Location, str], Missing] = {}
    for each_missing in missing(facts.plan):
        key = (facts.place(each_missing.segment, each_missing.index), each_missing.name)
        ranks.setdefault(key, set()).update(each_missing.ranks)
        first.setdefault(key, each_missing)
    yield from _unmade(facts)
    yield from _without_start(facts)
    for number, (key, found) in enumerate(first.items()):
        concerned = tuple(sorted(ranks[key]))
        plain = number >= _COMPARED or found.later or found.name in facts.plan.tensors
        similar = "" if plain else near(facts.plan, found.name)
        words = {
            "name": found.name, "ranks": facts.who(concerned),
            "run": f" in micro-batch {found.micro_batch}" if found.micro_batch >= 0 and facts.plan.micro_batches > 1 else "",
            "what": "is produced only later" if found.later else "is produced by nothing before",
            "help": _help(similar, "produce or receive the value on this rank before it is read"),
        }  # fmt: skip
        related = (Related("it is produced here", facts.place(*found.later)),) if found.later else ()
        yield Sighting(key[0], facts.fold.everywhere(concerned), words, related, (found.name,), "read")


def _without_start(facts: Facts) -> Iterator[Sighting]:
    """Yield each backward that gives gradients and takes none."""
    for name, segment in facts.plan.segments.items():
        ranks = facts.ranks_running(name)
        for index, operator in of_kinds(segment.operators, {Backward}) if ranks else ():
            if not isinstance(operator, Backward) or any(operator.inputs) or not any(operator.outputs):
                continue
            result, given = operator.forward.outputs[0], next(filter(None, operator.outputs))
            words = {"result": result, "name": given, "ranks": facts.who(ranks)}
            place, everywhere = facts.place(name, index), facts.fold.everywhere(ranks)
            yield Sighting(place, everywhere, words, about=(given, result), case="without-start")


def _unmade(facts: Facts) -> Iterator[Sighting]:
    """Yield each value that is returned and that nothing makes."""
    plan = facts.plan
    for number, found in enumerate(unmade(plan)):
        tensor = plan.tensors.get(found.name)
        place = plan.returned_at.get(found.name) or (tensor.source if tensor is not None else None)
        if found.segment:
            place = facts.start(found.segment)
        similar = near(plan, found.name) if number < _COMPARED else ""
        who = f"`{found.segment}` gives" if found.segment else "the plan returns"
        words = {"who": who, "name": found.name, "help": _help(similar, "produce the value, or return another one")}
        ranks = facts.fold.everywhere(facts.ranks_running(found.segment)) if found.segment else ()
        yield Sighting(place or Location(plan.path, pointer="outputs"), ranks, words, about=(found.name,), case="returned")


def _help(similar: str, otherwise: str) -> str:
    return f"did you mean `{similar}`?" if similar else otherwise
