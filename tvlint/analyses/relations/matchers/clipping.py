"""Numbers that the run computes of gradients and multiplies gradients with, as the factor of clipped ones: of the same ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add, or_

from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.state import Stepped
from tvlint.analyses.relations.matchers.projection import Projection
from tvlint.analyses.relations.multiples import numbered, unchanged
from tvlint.analyses.relations.terms.loss_identities import is_of_gradients, summands
from tvlint.analyses.relations.terms.terms import Terms

_NAME = "clipped-by-other-gradients"


@dataclass(frozen=True, slots=True)
class _Clipped:
    """Of one number, how often each gradient is in it, and the steps with gradients that it multiplies."""

    counts: Counter[int]
    steps: list[tuple[Stepped, int]] = field(default_factory=list)

    def gradients(self) -> set[int]:
        """Return the gradients that it multiplies."""
        return {gradient for _, gradient in self.steps}


def clipped_by_others(projection: Projection) -> Iterator[Defect]:
    """Yield the steps with gradients times a number of which others are a part and they are not, or more often."""
    alone, numbers, plain = projection.alone, dict[int, _Clipped](), list[tuple[Stepped, int]]()
    terms = alone.world.terms
    for step in alone.derived.steps:
        value = step.gradient
        if value is None or value.leaves or value.fold is not None:
            continue
        gradient, found = numbered(terms, value.term)
        if not is_of_gradients(terms, gradient):
            continue
        for number in found:
            if number not in numbers:
                numbers[number] = _Clipped(_gradients_in(terms, number))
            numbers[number].steps.append((step, gradient))
        plain += [] if found else [(step, gradient)]
    named = {gradient: step.weight for clipped in numbers.values() for step, gradient in clipped.steps}
    named |= {gradient: step.weight for step, gradient in plain}
    clippings = [clipped for clipped in numbers.values() if clipped.gradients() & clipped.counts.keys()]
    for clipped in clippings:
        for step, text, unless in _misfits(clipped, plain, named):
            repair = "compute one norm of all gradients that it scales, each of them counted once"
            defect = Defect(_NAME, True, text, step.rank, unless=unless, repair=repair)
            yield at(step.operator, alone.operators.segment_of(step.operator), defect)
    yield from _stage_by_stage(projection, clippings)
    yield from _averaged(projection, [number for number, clipped in numbers.items() if clipped in clippings])


def _gradients_in(terms: Terms, number: int) -> Counter[int]:
    """Return how often a number adds up what is made of each gradient; nothing where it is made of anything else as well."""
    counts = dict[int, Counter[int]]()
    for term in sorted(_within(terms, number)):
        inner = unchanged(terms, term)
        if is_of_gradients(terms, inner):
            counts[term] = Counter({inner: 1})
            continue
        below = [counts[each] for each in ([inner] if inner != term else terms.operands[term])]
        together = add if len(below) > 1 and summands(terms, term) else or_
        counts[term] = reduce(together, below) if below and all(below) else Counter()
    return counts[number]


def _within(terms: Terms, number: int) -> set[int]:
    """Return the terms that a number is computed of, down to gradients, and itself."""
    found, waiting = {number}, [number]
    while waiting:
        term = waiting.pop()
        inner = unchanged(terms, term)
        below = {inner} if inner != term else set(() if is_of_gradients(terms, term) else terms.operands[term])
        waiting.extend(below - found)
        found |= below
    return found


def _misfits(
    clipped: _Clipped, plain: Sequence[tuple[Stepped, int]], named: dict[int, str]
) -> Iterator[tuple[Stepped, str, str]]:
    """Yield the steps that do not fit the number, with how, and what may make it right."""
    reported = set[int]()
    for step, gradient in clipped.steps:
        often = clipped.counts[gradient]
        if not often:
            text = f"the gradient of `{step.weight}` is scaled on {{ranks}} by a number made of other gradients"
            yield step, text, "its own is left out on purpose"
        elif often > 1 and gradient not in reported:
            reported.add(gradient)
            others = next((named[each] for each, count in clipped.counts.items() if count == 1 and each in named), "")
            text = f"the number that scales gradients on {{ranks}} counts that of `{step.weight}` {often} times"
            yield step, text + (f" as often as that of `{others}`" if others else ""), ""
    for step, gradient in plain:
        if clipped.counts[gradient]:
            scaled = clipped.steps[0][0].weight
            text = f"the gradient of `{step.weight}` on {{ranks}} is a part of the number that scales that of `{scaled}`"
            yield step, f"{text}, and is not scaled itself", "it is left as it is on purpose"


def _stage_by_stage(projection: Projection, clippings: Sequence[_Clipped]) -> Iterator[Defect]:
    """Yield the steps by a number of the gradients of their own ranks alone, where all others have one of theirs."""
    steps = [step for step in projection.alone.derived.steps if step.gradient is not None]
    ranks = [frozenset(step.rank for step, _ in clipped.steps) for clipped in clippings]
    apart = (
        sum(map(len, ranks)) == len(frozenset().union(*ranks)) == len({step.rank for step in projection.alone.derived.steps})
    )
    every = sum(len(clipped.steps) for clipped in clippings) == len(steps)
    if len(clippings) < 2 or not apart or not every:
        return
    for clipped in clippings if all(each.gradients() == each.counts.keys() for each in clippings) else ():
        step = clipped.steps[0][0]
        text = f"the gradient of `{step.weight}` is scaled on {{ranks}} by a number made of those of {{ranks}} alone"
        repair = "sum the squares of the norms over the stages before the root"
        defect = Defect(_NAME, True, text, step.rank, unless="each stage is to be clipped by itself", repair=repair)
        yield at(step.operator, projection.alone.operators.segment_of(step.operator), defect)


def _averaged(projection: Projection, numbers: Sequence[int]) -> Iterator[Defect]:
    """Yield the collectives that average what ranks have of gradients of their own, for a number that scales gradients."""
    alone, averaged = projection.alone, projection.alone.derived.averaged
    within = set[int]().union(*(_within(alone.world.terms, number) for number in numbers if averaged))
    for term in sorted(averaged.keys() & within):
        text = "averages on {ranks} what each rank has made of other gradients, which has to be added up"
        segment = alone.operators.segment_of(averaged[term])
        ranks = [rank for rank, held in alone.derived.environments.items() if any(v and v.term == term for v in held.values())]
        yield from (at(averaged[term], segment, Defect("wrong-reduce-op", True, text, rank)) for rank in ranks)
