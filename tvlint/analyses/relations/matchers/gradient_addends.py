"""Gradients that are added up: each of them once, and the same ones on all ranks that step a copy of a weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.localisation.localise import name_of
from tvlint.analyses.relations.derivation.single_plan import Alone
from tvlint.analyses.relations.derivation.state import Held, Pulled, Root, Stepped
from tvlint.analyses.relations.matchers.parted import Index, are_of_data
from tvlint.analyses.relations.matchers.projection import Projection
from tvlint.analyses.relations.terms.loss_identities import gradients_added, is_gradient, multiplied
from tvlint.analyses.relations.terms.terms import GRADIENT_SUM, Terms
from tvlint.ir.operators import Operator
from tvlint.ir.ranks import describe

_MOST = 64
"""Of sums of more gradients nothing is said."""

UNEQUALLY = "counted unequally"
"""The cause of gradients that ranks count unequally often, with the weight where they are of one."""


def miscounted_gradients(projection: Projection) -> Iterator[Defect]:
    """Yield the sums with one gradient twice, the steps of a weight that lack one with which another copy is
    stepped, and the gradients of a weight of which ranks count an addend unequally often.
    """
    yield from _added_again(projection)
    yield from _left_out_of_copies(projection)
    yield from _counted_unlike(projection)


def _addends(terms: Terms, term: int) -> Counter[tuple[int, Fraction]]:
    """Return how often a term adds each gradient, with the constant that it is multiplied with; nothing of long sums."""
    found, waiting = Counter[tuple[int, Fraction]](), [(term, Fraction(1))]
    while waiting:
        term, factor = waiting.pop()
        while (below := multiplied(terms, term)) is not None:
            factor, term = factor * below[0], below[1]
        added = terms.operands[term] if terms.keys[term][0] == GRADIENT_SUM else gradients_added(terms, term)
        waiting += [(each, factor) for each in added]
        found.update([] if added else [(term, factor)])
        if found.total() + len(waiting) > _MOST:
            return Counter()
    return found


def _added_again(projection: Projection) -> Iterator[Defect]:
    """Yield the operators that add a gradient to a sum that has it already."""
    alone, reported, seen = projection.alone, set[int](), set[tuple[int, Held | None]]()
    terms, index = alone.world.terms, Index(projection)
    for rank, operator, term, of in _sums(alone):
        if (term, of) in seen:
            continue
        seen.add((term, of))
        for (gradient, factor), count in _addends(terms, term).items():
            given = _given(alone, gradient, of) if count > 1 and gradient not in reported else []
            if not given or count <= _uses(given):
                continue
            reported.add(gradient)
            while (
                inner := next((each for each in _summed(terms, term) if _addends(terms, each)[gradient, factor] > 1), -1)
            ) >= 0:
                term = inner
            made = index.maker(rank, term)
            by, _, (segment, maker) = made or (rank, "", (alone.operators.segment_of(operator), operator))
            text = f"adds `{given[0].name}`, the gradient of `{given[0].of}`, on {{ranks}} to a sum that has it already"
            yield at(maker, segment, Defect("gradient-added-twice", True, text, by, repair="add each gradient once"))


def _summed(terms: Terms, term: int) -> tuple[int, ...]:
    below = multiplied(terms, term)
    return (below[1],) if below is not None else gradients_added(terms, term)


def _sums(alone: Alone) -> Iterator[tuple[int, Operator, int, Held | None]]:
    """Yield what backward operators take, and steps, as the whole gradient of a value; None for a weight."""
    for pulled in alone.derived.pulled:
        if not pulled.is_given and isinstance(pulled.gradient, int):
            yield pulled.rank, pulled.operator, pulled.gradient, pulled.value
    for step in alone.derived.steps:
        if step.gradient is not None:
            yield step.rank, step.operator, step.gradient.term, None


def _given(alone: Alone, gradient: int, of: Held | None) -> list[Pulled]:
    """Return where backward operators give the gradient, of this value if any gives it that."""
    given = [pulled for pulled in alone.derived.pulled if pulled.is_given and pulled.gradient == gradient]
    return [pulled for pulled in given if pulled.value == of] or given


def _uses(given: list[Pulled]) -> int:
    """Return in how many places backward operators give one gradient, on the rank with most or of different results."""
    of_rank = Counter(pulled.rank for pulled in given)
    return max(*of_rank.values(), len({pulled.operator.forward.outputs for pulled in given}))


def _left_out_of_copies(projection: Projection) -> Iterator[Defect]:
    """Yield the steps of a copy of a weight with some of the gradients alone that step another copy."""
    alone, tensors = projection.alone, projection.plan.tensors
    terms, held, known = alone.world.terms, dict[object, dict[int, set[int]]](), dict[int, set[int]]()
    steps: dict[object, list[Stepped]] = {}
    for step in alone.derived.steps:
        value, tensor = step.gradient, tensors.get(step.weight)
        if value is not None and not value.leaves and value.fold is None and tensor is not None:
            if value.term not in known:
                known[value.term] = {gradient for gradient, _ in _addends(terms, value.term)}
            key = (tensor.logical or step.weight, value.box)
            held.setdefault(key, {}).setdefault(step.rank, set()).update(known[value.term])
            steps.setdefault(key, []).append(step)
    for copied, copies in held.items():
        every = set[int]().union(*copies.values())
        if all(len(added) == len(every) for added in copies.values()) or not all(is_gradient(terms, each) for each in every):
            continue
        for step in steps[copied]:
            added = copies[step.rank]
            more = [rank for rank, gradients in copies.items() if added < gradients]
            if added and more:
                others = describe(tuple(sorted(more)), projection.plan.mesh)
                text = f"`{step.weight}` is updated on {{ranks}} with a part of the gradients that {others} updates it with"
                defect = Defect("divergent-replicas", True, text, step.rank, repair="update all copies with one sum")
                yield at(step.operator, alone.operators.segment_of(step.operator), defect)


def _counted_unlike(projection: Projection) -> Iterator[Defect]:
    """Yield where ranks count an addend of the final gradient of a weight more often than others of them do."""
    alone, tensors, index = projection.alone, projection.plan.tensors, Index(projection)
    terms, held = alone.world.terms, dict[str, dict[tuple[int, Fraction], list[Stepped]]]()
    for step in alone.final_gradients():
        value = step.gradient
        if value is not None and not value.leaves and value.fold is None and value.coefficient:
            of = tensors[step.weight].logical or step.weight
            held.setdefault(of, {}).setdefault((value.term, Fraction(value.coefficient)), []).append(step)
    unlike = list(_started_unlike(projection))
    yield from unlike
    for weight, kinds in held.items() if not unlike else ():
        usual = max(kinds, key=lambda kind: (len(kinds[kind]), -kinds[kind][0].rank))
        for kind, steps in kinds.items():
            found = _counted_otherwise(terms, kind[0], usual[0])
            times, term, is_usual = (
                (kind[1] / usual[1], -1, False) if kind[0] == usual[0] else (found or (Fraction(1), -1, False))
            )
            if times == 1 or (kind[1] != usual[1] and found is not None):
                continue
            wrong, right = (kinds[usual], steps) if is_usual and len(steps) == len(kinds[usual]) else (steps, kinds[usual])
            times = 1 / times if wrong is not steps else times
            others = projection.facts.who(tuple(sorted({step.rank for step in right})))
            for step in wrong:
                made = index.maker(step.rank, term)
                maker, segment = _placed(alone, step) if made is None else made[2][::-1]
                text = f"{name_of(maker)} on {{ranks}} makes an addend of the gradient of `{step.weight}` count "
                text += f"{times} times as often as on {others}"
                yield at(maker, segment, _counting(text, step.rank, weight))


def _started_unlike(projection: Projection) -> Iterator[Defect]:
    """Yield where gradients of one value start with another number than on most ranks that have no data of their own."""
    alone, facts = projection.alone, projection.facts
    held: dict[tuple[int, object], dict[Fraction, list[Root]]] = {}
    for root in alone.derived.roots:
        held.setdefault((root.value.term, root.value.box), {}).setdefault(root.start, []).append(root)
    for starts in held.values():
        usual = max(starts, key=lambda start: (len(starts[start]), start == 1, -starts[start][0].rank))
        for start, roots in starts.items():
            ranks = [root.rank for root in (*roots, *starts[usual])]
            if start == usual or not {root.rank for root in roots}.isdisjoint(root.rank for root in starts[usual]):
                continue
            others = facts.who(tuple(sorted({root.rank for root in starts[usual]})))
            for root in roots if not are_of_data(projection, ranks) else ():
                text = f"the gradient of `{root.of}` starts on {{ranks}} with {start}, and with {usual} on {others}"
                yield at(root.operator, root.segment, _counting(text, root.rank))


def _counting(text: str, rank: int, *weights: str) -> Defect:
    """Return a defect by which ranks count gradients unequally often: of a weight, or of all."""
    repair = "scale the gradient alike on all ranks"
    return Defect("divergent-replicas", True, text, rank, repair=repair, cause=(UNEQUALLY, *weights))


def _placed(alone: Alone, step: Stepped) -> tuple[Operator, str]:
    return step.operator, alone.operators.segment_of(step.operator)


def _counted_otherwise(terms: Terms, one: int, other: int) -> tuple[Fraction, int, bool] | None:
    """Return how many times as often one gradient counts an addend as another one that is otherwise made alike, and the sum, or
    multiple, that counts it otherwise than once, with whether that is in the other one.
    """
    found, seen, waiting = set[tuple[Fraction, int, bool]](), set[tuple[int, int]](), [(one, other)]
    while waiting:
        one, other = waiting.pop()
        if one == other or (one, other) in seen:
            continue
        seen.add((one, other))
        ours, theirs = _counts(terms, one), _counts(terms, other)
        if not ours or len(ours) != len(theirs) or len(seen) > _MOST:
            return None
        if ours.keys() == theirs.keys():
            unlike = [(ours[each] / theirs[each], ours[each] == 1) for each in ours if ours[each] != theirs[each]]
            found |= {(times, other if is_once else one, is_once) for times, is_once in unlike}
            continue
        for pair in zip(sorted(ours.keys() - theirs.keys()), sorted(theirs.keys() - ours.keys()), strict=True):
            heads, operands = ([each[term] for term in pair] for each in (terms.keys, terms.operands))
            if ours[pair[0]] != theirs[pair[1]] or heads[0] != heads[1]:
                return None
            waiting += [below for below in zip(*operands, strict=False) if below[0] != below[1]]
    return max(found, default=None)


def _counts(terms: Terms, term: int) -> dict[int, Fraction]:
    """Return how often a term adds each gradient, constants counted; nothing where it adds anything else."""
    found = dict[int, Fraction]()
    for (gradient, factor), count in _addends(terms, term).items():
        found[gradient] = found.get(gradient, Fraction(0)) + factor * count
    return found if all(is_gradient(terms, each) for each in found) else {}
