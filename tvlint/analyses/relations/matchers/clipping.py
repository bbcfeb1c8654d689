"""Numbers that the run computes of gradients and multiplies gradients with, as the factor of clipped ones: of the same ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from typing import TypeAlias

from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.state import Stepped
from tvlint.analyses.relations.matchers.projection import Projection
from tvlint.analyses.relations.multiples import bounds_within, computed_factors, gradients_within, numbered, unchanged
from tvlint.analyses.relations.terms.loss_identities import is_of_gradients
from tvlint.analyses.relations.terms.numbers import number_of
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_NAME = "clipped-by-other-gradients"

_REPAIR = "compute one norm of all gradients that it scales, each of them counted once"

Counts: TypeAlias = Mapping[int, Fraction]
"""How often each of some terms is added up."""


@dataclass(frozen=True, slots=True)
class _Clipped:
    """Of one number, how often each gradient is in it, without and with constants, and the steps with gradients that it
    multiplies.
    """

    counts: Counts
    exact: Counts
    steps: list[tuple[Stepped, int]] = field(default_factory=list)
    times: set[Fraction] = field(default_factory=set)
    """How many times the gradients that are stepped the number is made of, as far as that is known."""

    def gradients(self) -> set[int]:
        """Return the gradients that it multiplies."""
        return {gradient for _, gradient in self.steps}

    def is_repeated(self, gradient: int) -> bool:
        """Return whether a gradient is counted more than once, and more often than those that are counted once.

        Where there are none, constants may undo it, or mean it.
        """
        others = [self.exact[each] for each, count in self.counts.items() if count == 1 and each in self.exact]
        if self.counts[gradient] <= 1:
            return False
        exact = self.exact.get(gradient)
        return exact is not None and (exact > max(others) if others else exact == self.counts[gradient])


def clipped_by_others(projection: Projection) -> Iterator[Defect]:
    """Yield the steps with gradients times a number of which others are a part and they are not, or more often."""
    alone, numbers, plain = projection.alone, dict[int, _Clipped](), list[tuple[Stepped, int]]()
    terms = alone.world.terms
    for step in alone.derived.steps:
        value = step.gradient
        if value is None or value.leaves or value.fold is not None:
            continue
        _, gradient, found = numbered(terms, value.term)
        if not is_of_gradients(terms, gradient):
            continue
        for number in found:
            if number not in numbers:
                counts, exact = (_gradients_in(terms, number, constants) for constants in (False, True))
                numbers[number] = _Clipped(counts, exact)
            numbers[number].steps.append((step, gradient))
            stepped = value.coefficient * computed_factors(alone, value.term)[0]
            times = {factor / stepped for factor in gradients_within(alone, number) if stepped}
            bounds = {bound for _, found_there in bounds_within(terms, number) for bound in found_there}
            numbers[number].times.update(each for each in times if each == 1 or all(bound % each for bound in bounds))
        plain += [] if found else [(step, gradient)]
    named = {gradient: step.weight for clipped in numbers.values() for step, gradient in clipped.steps}
    named |= {gradient: step.weight for step, gradient in plain}
    clippings = [clipped for clipped in numbers.values() if clipped.gradients() & clipped.counts.keys()]
    for clipped in clippings:
        for step, text, unless, repair in _misfits(clipped, plain, named):
            defect = Defect(_NAME, True, text, step.rank, unless=unless, repair=repair)
            yield at(step.operator, alone.operators.segment_of(step.operator), defect)
    yield from _stage_by_stage(projection, clippings)
    yield from _averaged(projection, [number for number, clipped in numbers.items() if clipped in clippings])


def _gradients_in(terms: Terms, number: int, constants: bool) -> Counts:
    """Return how often a number adds up what is made of each gradient, with or without the constants that multiply it.

    Nothing where it is made of anything else as well.
    """
    sums, counts = dict[int, Counts](), dict[int, Counts]()
    for term in sorted(_within(terms, number)):
        factor, inner, _ = numbered(terms, term)
        added = ((factor if constants else Fraction(1), inner),) if inner != term else _added(terms, term)
        if is_of_gradients(terms, inner):
            sums[term], counts[term] = {term: Fraction(1)}, {inner: Fraction(1)}
        elif added:
            sums[term] = _combined((often, sums[each]) for often, each in added)
            parts = {each: counts[each] for each in sums[term]}
            counts[term] = _combined((sums[term][each], part) for each, part in parts.items()) if all(parts.values()) else {}
        else:
            sums[term], below = {term: Fraction(1)}, [counts[each] for each in terms.operands[term]]
            counts[term] = _most(below) if all(below) else {}
    return counts[number]


def _added(terms: Terms, term: int) -> tuple[tuple[Fraction, int], ...]:
    """Return what the term's own operator adds up or subtracts, and how often; nothing where it does something else."""
    head, operands = terms.keys[term], terms.operands[term]
    often = number_of(head[2][0]) if len(head) == 5 and len(operands) == 2 and has_trait(str(head[0]), Trait.SUM) else None
    if often is None:
        return ()
    return (Fraction(1), operands[0]), (-often if has_trait(str(head[0]), Trait.DIFFERENCE) else often, operands[1])


def _combined(addends: Iterable[tuple[Fraction, Counts]]) -> Counts:
    """Return the sum of counts, each of them so often, without what cancels."""
    total = defaultdict[int, Fraction](Fraction)
    for often, counts in addends:
        for each, count in counts.items():
            total[each] += often * count
    return {each: count for each, count in total.items() if count}


def _most(found: Sequence[Counts]) -> Counts:
    """Return of each gradient the highest of its counts."""
    return {each: max(counts.get(each, Fraction(0)) for counts in found) for each in chain.from_iterable(found)}


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
) -> Iterator[tuple[Stepped, str, str, str]]:
    """Yield the steps that do not fit the number, with how, what may make it right, and what helps."""
    reported = set[int]()
    for step, gradient in clipped.steps:
        if gradient not in clipped.counts:
            text = f"the gradient of `{step.weight}` is scaled on {{ranks}} by a number made of other gradients"
            yield step, text, "its own is left out on purpose", _REPAIR
        elif clipped.is_repeated(gradient) and gradient not in reported:
            reported.add(gradient)
            often = clipped.counts[gradient]
            others = next((named[each] for each, count in clipped.counts.items() if count == 1 and each in named), "")
            text = f"the number that scales gradients on {{ranks}} counts that of `{step.weight}` {often} times"
            yield step, text + (f" as often as that of `{others}`" if others else ""), "", _REPAIR
    if len(clipped.times) == 1 and 1 not in clipped.times:
        step, times = clipped.steps[0][0], next(iter(clipped.times))
        text = f"the number that scales the gradient of `{step.weight}` on {{ranks}} is made of {times} times what is stepped"
        yield step, text, "it is compared with as many times the bound", "compute the norm of the gradients as they are stepped"
    for step, gradient in plain:
        if gradient in clipped.counts:
            scaled = clipped.steps[0][0].weight
            text = f"the gradient of `{step.weight}` on {{ranks}} is a part of the number that scales that of `{scaled}`"
            yield step, f"{text}, and is not scaled itself", "it is left as it is on purpose", _REPAIR


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
