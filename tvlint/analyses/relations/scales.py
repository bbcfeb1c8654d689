"""Losses that are another multiple of the mean than 1, and weights that are stepped with such a multiple of its gradient.

A relation says of which number of times a value it is: a mean over the elements of one rank that is summed over ranks is their
number times the mean. Constants of the loss and of a gradient count; the loop around a plan may divide by the micro-batches.
Multiples by sizes of axes and by the number of micro-batches are mistakes, and what a loss goes backward with beyond what the
plan returns of it, where the step does not undo that. Weights of losses are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import combinations
from math import prod

from tvlint.analyses.dataflow.def_use import collectives, makers_behind, writes
from tvlint.analyses.dataflow.facts import Facts, once_per_plan
from tvlint.analyses.dataflow.mesh_axes import group_size
from tvlint.analyses.relations.derivation.single_plan import Alone
from tvlint.analyses.relations.derivation.state import Stepped
from tvlint.analyses.relations.findings import relations, wrong_in_relations
from tvlint.analyses.relations.matchers.gradient_addends import UNEQUALLY
from tvlint.analyses.relations.multiples import bare, bounds_within, computed_factors, gradients_within
from tvlint.analyses.relations.shares import undoes_share
from tvlint.analyses.relations.terms.loss_identities import is_gradient
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.location import Location
from tvlint.ir.operators import Communicate, Operator, ReduceGradients
from tvlint.ir.placement import Partial
from tvlint.ir.plan import Plan
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait


@dataclass(frozen=True, slots=True)
class Multiple:
    """At `place` the loss, or the gradient `name` that steps `weight`, is `times` the mean of the loss or its gradient.

    It is that if `other` is stepped with the gradient itself, where one is named. `scaled` says that the gradients start with
    more than the loss that the plan returns, and that the step does not undo that. `may_be_meant` says that it is less, by a
    number that no axis and no count of micro-batches explains. `bounded` says that the step undoes it, after a bound that is
    compared with the multiple.
    """

    name: str
    weight: str
    times: str
    place: Location
    ranks: tuple[int, ...]
    other: str = ""
    scaled: bool = False
    may_be_meant: bool = False
    bounded: bool = False
    factor: Fraction = Fraction(1)
    """As `times`, as a number."""


@dataclass(frozen=True, slots=True)
class _Misfit:
    """A step, or all of one kind, takes `times` the gradient, as `Multiple` says."""

    times: Fraction
    other: str = ""
    scaled: bool = False
    may_be_meant: bool = False
    bounded: bool = False
    number: int = -1
    """The number of the run that is left in a gradient as a factor."""


_MOST_ADDENDS = 1 << 10
"""A sum of more losses counts as one of so many."""


@once_per_plan
def multiples(facts: Facts) -> tuple[Multiple, ...]:
    """Return the losses and final gradients of a wrong scale, each once."""
    return tuple(_multiples(facts))


def _multiples(facts: Facts) -> Iterator[Multiple]:
    alone = relations(facts)
    if alone is None:
        return
    found = dict[tuple[str, str, _Misfit], tuple[Operator, set[int]]]()
    environments = alone.derived.environments.items()
    for rank, loss, value in ((rank, loss, held.get(loss)) for rank, held in environments for loss in facts.plan.losses):
        times = None if value is None else _odd(alone, value.term, _factor(alone, value))
        if times is not None:
            made = next(operator for operator in alone.plan.operators() if loss in writes(operator))
            found.setdefault((loss, "", _Misfit(times)), (made, set()))[1].add(rank)
    causes = [defect.cause for defect in wrong_in_relations(facts) if isinstance(defect.cause, tuple)]
    unequal = {cause[1:] for cause in causes if cause[0] == UNEQUALLY}
    blamed = {cause[1] for cause in causes if cause[0] == "scaling"}
    reductions = _Reductions(facts, alone.plan)
    multiplied = cache(lambda rank: makers_behind(alone.plan.run_on(rank), lambda operator: id(operator) in blamed))
    for step, misfit in _of_steps(alone) if () not in unequal else ():
        if (alone.plan.tensors[step.weight].logical or step.weight,) in unequal or step.name in multiplied(step.rank):
            continue  # of a multiple that is said where a collective makes it
        at = None if misfit.scaled or misfit.bounded else reductions.by(step, misfit.times)
        found.setdefault((step.name, step.weight, misfit), (at or step.operator, set()))[1].add(step.rank)
    for (name, weight, misfit), (operator, ranks) in found.items():
        times, place = misfit.times, place_of(facts, operator)
        said = f"{times.numerator} times" if times.denominator == 1 else f"{times} of"
        said = f"`{_name_of(alone, misfit.number)}` times" if misfit.number >= 0 else said
        everywhere = facts.fold.everywhere(tuple(sorted(ranks)))
        how = (misfit.other, misfit.scaled, misfit.may_be_meant, misfit.bounded)
        yield Multiple(name, weight, said, place, everywhere, *how, times)


class _Reductions:
    """The reductions of a plan that lead to a gradient, looked for once on each rank."""

    def __init__(self, facts: Facts, plan: Plan) -> None:
        self._facts, self._plan = facts, plan
        self._leading, self._of_weights = cache(self._find_leading), cache(self._find_of_weights)

    def by(self, step: Stepped, times: Fraction) -> Operator | None:
        """Return the one on the way to a gradient that makes so much of it; None where none does, or several may."""
        found: list[Operator] = [*self._leading(step.rank, times).get(step.name, ())] if times != 1 else []
        for operator in self._of_weights(step.rank).get(step.weight, ()) if times != 1 else ():
            divisor, by_number = max(1, operator.divisor), self._times(operator)
            found += [operator] if times in (by_number, Fraction(1, divisor), by_number / divisor) else []
        return found[0] if len(found) == 1 else None

    def _find_leading(self, rank: int, times: Fraction) -> dict[str, tuple[Operator, ...]]:
        def makes(operator: Operator) -> bool:
            return isinstance(operator, Communicate) and bool(operator.reduce) and self._times(operator) == times

        return makers_behind(self._plan.run_on(rank), makes)

    def _find_of_weights(self, rank: int) -> dict[str, list[ReduceGradients]]:
        found: dict[str, list[ReduceGradients]] = {}
        for operator in (each for each in self._plan.run_on(rank) if isinstance(each, ReduceGradients)):
            for weight in operator.weights:
                found.setdefault(weight, []).append(operator)
        return found

    def _times(self, operator: Communicate | ReduceGradients) -> Fraction:
        """Return what a reduction makes of equal values, or an average of their sum."""
        count = Fraction(group_size(self._facts.plan, operator.group))
        return 1 / count if operator.reduce == "avg" else count


def _name_of(alone: Alone, term: int) -> str:
    """Return the name under which a rank holds a term; that of what is given, where none does."""
    held = (item for names in alone.derived.environments.values() for item in names.items())
    given = str(alone.world.terms.keys[term][1])
    return next((name for name, value in held if value is not None and value.term == term), given)


def place_of(facts: Facts, operator: Operator) -> Location:
    """Return where an operator of the plan stands."""
    return facts.place(*where_of(facts, operator), operator)


def where_of(facts: Facts, operator: Operator) -> tuple[str, int]:
    """Return the segment of an operator of the plan, and its position there."""
    for name, segment in facts.plan.segments.items():
        for index, each_operator in enumerate(segment.operators):
            if each_operator is operator:
                return name, index
    raise AssertionError(operator)


def _of_steps(alone: Alone) -> Iterator[tuple[Stepped, _Misfit]]:
    """Yield the steps with a multiple of the gradient of a mean loss: of several, of weights that only one of them uses."""
    starts = {(root.value.term, root.start) for root in alone.derived.roots}
    if len(starts) + len(alone.derived.given_starts) == 1 and not (starts and alone.derived.steps):
        yield from _of_one_start(alone)
    if len(starts) == 1:
        used = {start: {step.weight for step in alone.derived.steps} for start in starts}
    else:
        used = {start: _weights_of(alone.world.terms, start[0]) for start in starts}
    for (loss, seed), weights in used.items() if not alone.derived.roots_open else ():
        if prod(alone.world.terms.shape[loss]) != 1:
            continue
        others = {name for start, names in used.items() if start != (loss, seed) for name in names}
        steppeds = [step for step in alone.derived.steps if step.weight in weights]
        steppeds = [step for step in steppeds if others.isdisjoint({step.weight, *step.made_of})]
        scale = seed if len(used) == 1 else Fraction(0)
        yield from _of_loss(alone, loss, scale, steppeds)


def _weights_of(terms: Terms, term: int) -> set[str]:
    """Return the weights that a value is computed from."""
    seen, waiting = {term}, [term]
    while waiting:
        below = set(terms.operands[waiting.pop()]) - seen
        seen |= below
        waiting.extend(below)
    return {terms.keys[term][1] for term in seen if terms.keys[term][0] == "weight"}


def _of_loss(alone: Alone, loss: int, start: Fraction, steps: list[Stepped]) -> Iterator[tuple[Stepped, _Misfit]]:
    """Yield the steps with a multiple of the gradient of this mean loss; where all fit that, those that differ from most.

    Where it is the only loss, its gradient starts with `start`, else that is zero; gradients count what they start with.
    """
    seed = bare(alone, loss)[0]
    held: dict[tuple[int, ...], dict[Fraction, list[Stepped]]] = {}
    for step, factor, numbers in _factors(alone, steps):
        open_numbers = tuple(number for number in numbers if not _is_unscaled(alone, loss, start, number))
        bounded = (_scaled_at_bound(alone, loss, start * seed, seed, number) for number in open_numbers)
        times = next((each for each in bounded if each is not None), None)
        if times is not None and _still_scaled(alone, loss, start * seed, factor * seed) is None:
            yield step, _Misfit(times, bounded=True)
        held.setdefault(open_numbers, {}).setdefault(factor * seed, []).append(step)
    yield from _scaled_by_numbers(alone, loss, steps)
    for open_numbers, steps_of in held.items():
        misfits = {factor: None if open_numbers else _misfit(alone, loss, start * seed, factor) for factor in steps_of}
        right = [factor for factor, misfit in misfits.items() if misfit is None]
        misfits = {factor: _against(alone, factor, misfit, right) for factor, misfit in misfits.items()}
        judged = [(step, misfit) for factor, misfit in misfits.items() if misfit is not None for step in steps_of[factor]]
        yield from judged
        if not judged:
            yield from _unlike_most(steps_of)


def _scaled_by_numbers(alone: Alone, loss: int, steps: list[Stepped]) -> Iterator[tuple[Stepped, _Misfit]]:
    """Yield the steps that leave a number of the run in the gradient by which the loss is scaled, where other steps do not, or
    multiply with it again.
    """
    terms, scaled = alone.world.terms, bare(alone, loss)[1]
    factors = terms.operands[scaled] if has_trait(str(terms.keys[scaled][0]), Trait.PRODUCT) else ()
    found = [(step, scalings, _without_gradients(alone, scalings)) for step, _, scalings in _factors(alone, steps)]
    for number, inner in zip(factors, factors[::-1], strict=True) if len(factors) == 2 else ():
        if _stated(alone, bare(alone, inner)[1]) and any(number in undone for _, _, undone in found):
            misfit = _Misfit(Fraction(1), scaled=True, number=number)
            yield from ((step, misfit) for step, again, undone in found if number in again or number not in undone)


def _without_gradients(alone: Alone, scalings: Sequence[int]) -> set[int]:
    """Return what the numbers are computed of that scale gradients, apart from those that are computed of gradients."""
    terms, found = alone.world.terms, set[int]()
    for scaling in scalings:
        within = {scaling if prod(terms.shape[scaling]) == 1 else terms.operands[scaling][1]}
        waiting = list(within)
        while waiting:
            below = set(terms.operands[waiting.pop()]) - within
            within |= below
            waiting.extend(below)
        found |= set() if any(is_gradient(terms, term) for term in within) else within
    return found


def _of_one_start(alone: Alone) -> Iterator[tuple[Stepped, _Misfit]]:
    """Yield the steps with another multiple of their gradient than most, of a plan that is given where gradients start."""
    held: dict[tuple[int, ...], dict[Fraction, list[Stepped]]] = {}
    for step, factor, numbers in _factors(alone, [*alone.final_gradients()]):
        held.setdefault(numbers, {}).setdefault(factor, []).append(step)
    likely = _likely(alone.plan, alone.micro_batches)
    for steps_of in held.values():
        yield from ((step, misfit) for step, misfit in _unlike_most(steps_of) if misfit.times in likely)


def _factors(alone: Alone, steps: Sequence[Stepped]) -> Iterator[tuple[Stepped, Fraction, tuple[int, ...]]]:
    """Yield the steps that take a multiple of a gradient, with its constant and the numbers of the run in it."""
    for step in steps:
        if step.gradient is not None and _is_whole(step.gradient):
            factor, inner, numbers = computed_factors(alone, step.gradient.term)
            if is_gradient(alone.world.terms, inner):
                total = step.gradient.coefficient * factor
                yield step, Fraction(1) if undoes_share(alone, step, total) else total, numbers


def _unlike_most(steps_of: Mapping[Fraction, list[Stepped]]) -> Iterator[tuple[Stepped, _Misfit]]:
    """Yield the steps with another factor than most, if there are several factors."""
    usual, most = max(steps_of.items(), key=lambda item: (len(item[1]), -item[0]))
    for factor, others in steps_of.items():
        yield from ((step, _Misfit(factor / usual, most[0].weight)) for step in others if factor != usual)


def _against(alone: Alone, factor: Fraction, misfit: _Misfit | None, right: list[Fraction]) -> _Misfit | None:
    """Return a misfit as a multiple of what the other steps take, where one multiple is right for them."""
    if misfit is None or misfit.scaled or len(right) != 1:
        return misfit
    times = factor / right[0]
    meant = misfit.may_be_meant and times not in _likely(alone.plan, alone.micro_batches)
    return replace(misfit, times=times, may_be_meant=meant)


def _divided(alone: Alone, loss: int, seed: Fraction, factor: Fraction) -> Fraction | None:
    """Return how many times the gradient of the mean over all micro-batches a step takes, of a plan that divides for them.

    It does where backward starts from what the plan returns as its loss, divided by a multiple of their number. None for 1, and
    where that is not known.
    """
    batches, stated = alone.micro_batches, _stated(alone, bare(alone, loss)[1])
    if batches == 1 or len(stated) != 1 or not seed or min(stated) / seed % batches:
        return None
    summed, averaged, counted = _elements(alone, bare(alone, loss)[1])
    times, likely = factor / counted * prod((*summed, *averaged)) * batches, _likely(alone.plan, batches)
    if any(factor * share * batches == 1 for share in _shares(alone, loss)):
        return None
    return times if times in likely or times / batches in likely | {Fraction(1)} else None


def _is_unscaled(alone: Alone, loss: int, start: Fraction, number: int) -> bool:
    """Return whether a number of the run is computed of gradients of the loss alone, and each of the right scale."""
    seed, found = bare(alone, loss)[0], gradients_within(alone, number)
    return bool(found) and all(_misfit(alone, loss, start * seed, factor * seed) is None for factor in found)


def _misfit(alone: Alone, loss: int, seed: Fraction, factor: Fraction) -> _Misfit | None:
    """Return what is wrong with so many times the gradient of what `loss` is made of, which starts with `seed`."""
    scaled = _still_scaled(alone, loss, seed, factor)
    if scaled is not None:
        is_undone = seed / min(_stated(alone, bare(alone, loss)[1])) != scaled
        return _Misfit(scaled, scaled=not is_undone or scaled not in _likely(alone.plan, alone.micro_batches))
    by_sizes = _divided(alone, loss, seed, factor)
    if by_sizes is None and (by_sizes := _odd(alone, loss, factor)) is not None and by_sizes < 1:
        by_sizes *= alone.micro_batches  # what divides, divides by their number too
    times = by_sizes or _divided_in_part(alone, loss, seed, factor)
    if times is None or any(_is_of_mean(alone, loss, factor / weight) for weight in _weights_of_loss(alone, loss)):
        return None
    return _Misfit(times, may_be_meant=by_sizes is None and times < 1)


def _weights_of_loss(alone: Alone, loss: int) -> set[Fraction]:
    """Return which multiples of what `loss` is made of the plan declares to return, alike on all ranks or to be averaged."""
    named = (alone.plan.tensors.get(name) for name in alone.plan.losses or alone.plan.outputs)
    declared = [tensor.placements for tensor in named if tensor is not None and tensor.placements is not None]
    partial = {each.reduce for placements in declared for each in placements.values() if isinstance(each, Partial)}
    return _stated(alone, bare(alone, loss)[1]) if declared and partial <= {"avg"} else set()


def _factor(alone: Alone, value: Value) -> Fraction | None:
    """Return of how many times a value is, constants that it is multiplied with counted; None for a part of a sum, and zero."""
    return value.coefficient * bare(alone, value.term)[0] if _is_whole(value) else None


def _is_whole(value: Value) -> bool:
    """Return whether a value is neither a part of a sum nor zero."""
    return not value.leaves and value.fold is None and value.coefficient != 0


def _odd(alone: Alone, loss: int, factor: Fraction | None) -> Fraction | None:
    """Return of how many times the mean that `loss` is made of, or its gradient, something is with that factor of it; None for
    1, and where that is not known.
    """
    if factor is None:
        return None
    plan, batches = alone.plan, alone.micro_batches
    summed, averaged, counted = _elements(alone, bare(alone, loss)[1])
    every = factor / counted * prod((*summed, *averaged))
    if not (summed or averaged):
        every = factor * max(_shares(alone, loss))
    if _is_of_mean(alone, loss, factor):
        losses = _addends(alone, bare(alone, loss)[1])
        divided = losses > 1 and all(each.denominator % batches == 0 for each in _stated(alone, bare(alone, loss)[1]))
        return Fraction(batches) if every == 1 != batches and _averages(plan) and not divided else None
    return every if every in _likely(plan, batches) else None


def _is_of_mean(alone: Alone, loss: int, factor: Fraction) -> bool:
    """Return whether so many times what `loss` is made of is its mean, over the batch or over each micro-batch."""
    right = {Fraction(1), Fraction(1, alone.micro_batches)}
    return any(factor * share in right for share in _shares(alone, loss))


def _fits(alone: Alone, loss: int, factor: Fraction) -> bool:
    """Return whether what is that many times the gradient of what `loss` is made of is its gradient over all micro-batches."""
    batches = alone.micro_batches
    summed, averaged, counted = _elements(alone, bare(alone, loss)[1])
    return factor / (1 if (summed or averaged) and counted == 1 else batches) in (Fraction(1), Fraction(1, batches))


def _still_scaled(alone: Alone, loss: int, seed: Fraction, factor: Fraction) -> Fraction | None:
    """Return how many times the gradient of the loss a step takes, where the plan returns a loss and goes back from a multiple.

    That is a loss scale, which the step has to undo. None where it does, and where there is no loss scale.
    """
    stated = _stated(alone, bare(alone, loss)[1])
    if len(stated) != 1 or seed <= min(stated) or _fits(alone, loss, factor):
        return None
    times = factor / min(stated)
    return None if _fits(alone, loss, times) else times / alone.micro_batches


def _scaled_at_bound(alone: Alone, loss: int, start: Fraction, seed: Fraction, number: int) -> Fraction | None:
    """Return how many times the gradient of the loss a number of the run compares with a bound; None where it compares none,
    or where the bound may be as many times its own.
    """
    for term, bounds in bounds_within(alone.world.terms, number):
        times = {_still_scaled(alone, loss, start, factor * seed) for factor in gradients_within(alone, term)}
        scale = next(iter(times)) if len(times) == 1 else None
        if scale is not None and all(bound % scale for bound in bounds):
            return scale
    return None


def _stated(alone: Alone, inner: int) -> set[Fraction]:
    """Return which multiples of a value the plan returns as its loss; of a plan that names no loss, as numbers."""
    returned = alone.plan.losses or alone.plan.outputs
    values = (held.get(name) for held in alone.derived.environments.values() for name in returned)
    found = (bare(alone, value.term) for value in values if value is not None)
    return {factor for factor, term in found if term == inner}


def _divided_in_part(alone: Alone, loss: int, seed: Fraction, factor: Fraction) -> Fraction | None:
    """Return how many times the gradient of the loss a step takes that is divided by another number than that of its parts."""
    plan, batches = alone.plan, alone.micro_batches
    most = prod(axis.size for axis in plan.mesh.axes) * batches
    divided = factor / (seed or factor)
    if divided == 1 or _is_of_mean(alone, loss, factor):
        return None
    parts = (divided.numerator, divided.denominator)
    return divided if all(most % part == 0 for part in parts) else None


def _shares(alone: Alone, loss: int) -> set[Fraction]:
    """Return by which numbers what `loss` is made of may be multiplied as a mean: sums may go over dimensions of each element.

    So may a mean that the plan multiplies again. A sum of losses counts as often as the plan returns it, else each once or all
    as one.
    """
    factor, inner = bare(alone, loss)
    summed, averaged, counted = _elements(alone, inner)
    if (losses := _addends(alone, inner)) > 1:
        times = _stated(alone, inner) or {Fraction(1), Fraction(1, losses)}
        return {1 / (each * alone.micro_batches) for each in times if each}
    sizes, rest = ([*summed, *averaged], 1) if factor > 1 else (summed, prod(averaged))
    chosen = (part for count in range(len(sizes) + 1) for part in combinations(sizes, count))
    return {Fraction(prod(part) * rest, counted) for part in chosen}


def _addends(alone: Alone, term: int) -> int:
    """Return of how many values a sum is made that the plan writes out; 1 for what is none."""
    terms, found, waiting = alone.world.terms, 0, [term]
    while waiting and found < _MOST_ADDENDS:
        inner = bare(alone, waiting.pop())[1]
        below = terms.operands[inner] if has_trait(str(terms.keys[inner][0]), Trait.SUM) else ()
        waiting += below
        found += not below
    return found


def _elements(alone: Alone, term: int) -> tuple[list[int], list[int], int]:
    """Return the sizes that an operator sums and averages over in one micro-batch, and by how many elements it divides in all
    of them.
    """
    terms, batches = alone.world.terms, alone.micro_batches
    head, operands = terms.keys[term], terms.operands[term]
    pattern: tuple[tuple[int, ...], ...] = head[3] if len(head) == 5 else ()
    if len(pattern) < len(operands) + 3:
        return [], [], batches
    summed, averaged, _ = pattern[-3:]
    sizes: dict[int, int] = {}
    for names, operand in zip(pattern, operands, strict=False):
        slot, replicas = terms.slot[operand], alone.plan.replication.count
        for dim, (name, size) in enumerate(zip(names, terms.shape[operand], strict=False)):
            sizes[name] = size * (replicas if dim == slot else 1)
    over = [[sizes[name] for name in names if name in sizes] for names in (summed, averaged)]
    return over[0], over[1], batches * prod(sizes.get(name, 1) for name in averaged) if averaged else 1


def _averages(plan: Plan) -> bool:
    """Return whether the plan averages gradients over ranks, or divides them as it reduces them."""
    reducers = plan.operators_of(ReduceGradients)
    divided = any(reducer.reduce == "avg" or reducer.divisor > 1 for reducer in reducers)
    return divided or any(collective.reduce == "avg" for collective in collectives(plan))


def _likely(plan: Plan, batches: int) -> set[Fraction]:
    """Return the multiples that come of sizes of axes and the number of micro-batches."""
    sizes = [axis.size for axis in plan.mesh.axes if axis.size > 1][:6]
    found = {Fraction(prod(part)) for count in range(1, len(sizes) + 1) for part in combinations(sizes, count)}
    found |= {one / other for one in (Fraction(1), *found) for other in found if one != other} | {Fraction(batches)}
    found |= {Fraction(1, batches), Fraction(1, batches * batches)}
    return found | {one / batches for one in found}
