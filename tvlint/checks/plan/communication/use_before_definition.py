"""use-before-definition: a value is read where nothing has produced it."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.def_use import of_kinds
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.undefined_uses import Missing, missing, near, unmade
from tvlint.findings import Finding, Related
from tvlint.ir.location import Location
from tvlint.ir.operators import Backward
from tvlint.rule import Rule

_COMPARED = 20
"""So many names of a plan are compared with all others."""


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield reads of what comes later, or never, on the same rank and in the same micro-batch, and results without a maker."""
    ranks: dict[tuple[Location, str], set[int]] = {}
    first: dict[tuple[Location, str], Missing] = {}
    for each_missing in missing(facts.plan):
        key = (facts.place(each_missing.segment, each_missing.index), each_missing.name)
        ranks.setdefault(key, set()).update(each_missing.ranks)
        first.setdefault(key, each_missing)
    yield from _unmade(facts, rule)
    yield from _without_start(facts, rule)
    for number, (key, found) in enumerate(first.items()):
        concerned = tuple(sorted(ranks[key]))
        run = f" in micro-batch {found.micro_batch}" if found.micro_batch >= 0 and facts.plan.micro_batches > 1 else ""
        what = "is produced only later" if found.later else "is produced by nothing before"
        related = (Related("it is produced here", facts.place(*found.later)),) if found.later else ()
        plain = number >= _COMPARED or found.later or found.name in facts.plan.tensors
        similar = "" if plain else near(facts.plan, found.name)
        yield rule.finding(
            f"`{found.name}` is read on {facts.who(concerned)}{run}, but {what}",
            key[0],
            f"did you mean `{similar}`?" if similar else "produce or receive the value on this rank before it is read",
            related,
            facts.fold.everywhere(concerned),
            about=(found.name,),
        )


def _without_start(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield a finding for each backward that gives gradients and takes none."""
    for name, segment in facts.plan.segments.items():
        ranks = facts.ranks_running(name)
        for index, operator in of_kinds(segment.operators, {Backward}) if ranks else ():
            if not isinstance(operator, Backward) or any(operator.inputs) or not any(operator.outputs):
                continue
            result, given = operator.forward.outputs[0], next(filter(None, operator.outputs))
            yield rule.finding(
                f"the backward of `{result}` gives `{given}` on {facts.who(ranks)}, and takes no gradient of `{result}`",
                facts.place(name, index),
                f"go back from the gradient of `{result}`",
                ranks=facts.fold.everywhere(ranks),
                about=(given, result),
            )


def _unmade(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield a finding for each value that is returned and that nothing makes."""
    plan = facts.plan
    for number, found in enumerate(unmade(plan)):
        who = f"`{found.segment}` gives" if found.segment else "the plan returns"
        tensor = plan.tensors.get(found.name)
        place = plan.returned_at.get(found.name) or (tensor.source if tensor is not None else None)
        if found.segment:
            place = facts.start(found.segment)
        similar = near(plan, found.name) if number < _COMPARED else ""
        yield rule.finding(
            f"{who} `{found.name}`, which nothing makes",
            place or Location(plan.path, pointer="outputs"),
            f"did you mean `{similar}`?" if similar else "produce the value, or return another one",
            ranks=facts.fold.everywhere(facts.ranks_running(found.segment)) if found.segment else (),
            about=(found.name,),
        )
