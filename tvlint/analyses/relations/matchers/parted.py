"""Values that a collective takes for pieces or parts of one, and that a rank makes otherwise than the others at one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tvlint.analyses.dataflow.mesh_axes import batch_axes
from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.localisation.sure import Parts
from tvlint.analyses.relations.held_apart import is_split
from tvlint.analyses.relations.matchers.projection import Projection, is_whole
from tvlint.analyses.relations.terms.loss_identities import is_gradient, multiple_of, multiplied, summands, taken_away
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import Backward, Communicate, Compute, Operator
from tvlint.ir.placement import Replicate
from tvlint.ir.plan import Role
from tvlint.ir.ranks import describe
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_DIFFERING = ("gathers-different-values", "sum-of-different-values")
_MOST_TERMS = 256
"""So many operators of two values are compared: where those differ that are farther back, nothing is said."""

_REPAIR = "let all ranks compute the value alike"


@dataclass(frozen=True, slots=True)
class _Parted:
    """Where two values part: the terms in each other's place, and how they differ, in words."""

    one: int
    other: int
    how: str


@dataclass(frozen=True, slots=True)
class _Meeting:
    """What ranks make, by its terms, of one value: parts of it, of a sum if so, or values that are `alike` in every right plan.

    How often a `gradient` counts is judged apart.
    """

    held: Mapping[int, tuple[Operator, int]]
    is_sum: bool = False
    alike: bool = False
    gradient: bool = False


def values_made_otherwise(projection: Projection) -> Iterator[Defect]:
    """Yield the operators that make otherwise than most other ranks what a collective joins, what the plan returns, or the
    gradient of a weight: a multiple, a rounded value, another activation, or one of operands in each other's place.

    Values that differ in more than one such place, or in what they are made of, may be meant. Ranks with data of their own may
    weigh it before it is summed.
    """
    index = Index(projection)
    for meetings in (_meetings(projection), _results(projection), _final_gradients(projection)):
        found = [defect for meeting in meetings for defect in _made_otherwise(projection, index, meeting)]
        if found:
            yield from found
            return


def _made_otherwise(projection: Projection, index: Index, meeting: _Meeting) -> Iterator[Defect]:
    """Yield where the values of a meeting are made otherwise than most of them are."""
    plan, held = projection.plan, meeting.held
    counts = Counter(term for _, term in held.values())
    if len(counts) == 1 or (meeting.is_sum and are_of_data(projection, held)):
        return
    usual, most = max(counts.items(), key=lambda item: (item[1], *_made_of(projection, item[0])))
    others = [rank for rank in held if held[rank][1] == usual]
    for rank, (_, term) in held.items() if 2 * most >= len(held) else ():
        parted = _parted(index, usual, term, (others[0], rank), meeting) if term != usual else None
        found = index.maker(rank, parted.other, index.names(others[0], parted.one)) if parted is not None else None
        if parted is not None and found is not None:
            by, name, (segment, maker) = found
            how = parted.how.replace("{others}", describe(tuple(sorted(others)), plan.mesh) if by == rank else "others")
            text = f"`{name}` on {{ranks}} {how}"
            yield at(maker, segment, Defect("divergent-replicas", True, text, by, repair=_REPAIR))


def returned_apart(projection: Projection) -> Iterator[Defect]:
    """Yield what makes results that ranks are declared to hold alike, and that each makes of other indices."""
    plan, terms = projection.plan, projection.alone.world.terms
    environments = projection.alone.derived.environments
    for name in plan.outputs:
        tensor, held = plan.tensors.get(name), {rank: values.get(name) for rank, values in environments.items()}
        placements = tensor.placements if tensor is not None else None
        alike = [axis for axis in projection.axes if placements is not None and is_whole(placements.get(axis, Replicate()))]
        parts = Parts(plan, held)
        for rank, value in held.items():
            for axis in alike:
                others = [other for other in parts.beside(rank, axis) if other is not None and other.clean]
                made = projection.alone.operators.makers_on(rank).get(name)
                if (
                    value is not None
                    and value.clean
                    and made is not None
                    and any(differ_by_indices(terms, value.term, other.term) for other in others)
                ):
                    text = f"the plan returns `{name}` on {{ranks}}, which is made of other indices on other ranks of `{axis}`"
                    yield at(made[1], made[0], Defect("missing-allreduce", True, text, rank))


def merged_in_part(projection: Projection) -> Iterator[Defect]:
    """Yield what makes the one result of a plan attention over some keys alone, where the plan says how that result lies.

    Where a plan returns log-sum-exps beside, whoever reads both may merge it further.
    """
    (name, *more), alone = projection.plan.outputs or ("",), projection.alone
    tensor = projection.plan.tensors.get(name)
    for rank, held in alone.derived.environments.items() if tensor is not None and tensor.placements is not None else ():
        fold = value.fold if (value := held.get(name)) is not None else None
        made = alone.operators.makers_on(rank).get(name)
        if fold is not None and fold.kind == "merge" and not fold.complete() and made is not None and not more:
            count = sum(high - low for low, high in fold.covered)
            text = f"the plan returns `{name}`, which on {{ranks}} is attention over {count} of {fold.size} keys"
            yield at(made[1], made[0], Defect("attention-over-local-keys", True, text, rank))


def counted_by_every_rank(projection: Projection) -> Iterator[Defect]:
    """Yield the operators that add what all ranks of a sum have alike to what each has for itself, before that is summed.

    A sum that is scaled afterwards may be an average, and what is subtracted anywhere may be what is too much.
    """
    alone, index = projection.alone, Index(projection)
    every = [*projection.plan.operators_of(Compute)]
    scaled = {name for each in every if has_trait(each.op, Trait.SCALING) for name in each.tensor_operands}
    away = taken_away(alone.world.terms)
    for meeting in _meetings(projection):
        held = meeting.held
        operators = [operator for operator, _ in held.values() if isinstance(operator, Communicate)]
        if not scaled.isdisjoint(name for operator in operators for name in operator.outputs):
            continue
        added = [set(_addends(alone.world.terms, term)) for _, term in held.values()]
        shared = (
            set.intersection(*added) if meeting.is_sum and all(operator.reduce != "avg" for operator in operators) else set()
        )
        shared = {term for term in shared - away if multiplied(alone.world.terms, term) is None}
        for rank, (_, term) in held.items() if shared and not are_of_data(projection, held) else ():
            made = index.maker(rank, term)
            names = sorted(name for each in shared for name in index.names(rank, each))
            if made is not None and made[0] == rank and names:
                segment, maker = made[2]
                text = f"`{made[1]}` on {{ranks}} has `{names[0]}` in it, which every rank has alike, and is summed: it counts "
                yield at(maker, segment, Defect("bias-added-to-partial", True, f"{text}{len(held)} times", rank))


def _addends(terms: Terms, term: int) -> Iterator[int]:
    """Yield what sums of two values add up to a term; nothing of a term that is no such sum."""
    waiting = [term]
    while waiting:
        each = waiting.pop()
        added = summands(terms, each)
        waiting += added
        yield from [each] if not added and each != term else []


class Index:
    """The names that ranks give values, found when asked for first."""

    def __init__(self, projection: Projection) -> None:
        self.alone, self.terms = projection.alone, projection.alone.world.terms
        self._of: dict[int, dict[int, set[str]]] = {}

    def names(self, rank: int, term: int) -> set[str]:
        """Return the names that a rank gives a value that it makes; of a weight its name in the model."""
        head = self.terms.keys[term]
        if head[0] == "input":
            return set()
        return {str(head[1])} if head[0] == "weight" else self._named(term).get(rank, set())

    def maker(self, rank: int, term: int, names: Container[str] = ()) -> tuple[int, str, tuple[str, Operator]] | None:
        """Return who makes a value, this rank before others, its name there, of `names` if one is, and what makes it."""
        named = self._named(term)
        for each in (rank, *sorted(named)):
            makers = self.alone.operators.makers_on(each)
            computed = [name for name in named.get(each, ()) if isinstance(makers.get(name, ("", None))[1], Compute | Backward)]
            if computed:
                name = min(computed, key=lambda name: (name not in names, name))
                return each, name, makers[name]
        return None

    def _named(self, term: int) -> dict[int, set[str]]:
        if not self._of:
            for (rank, _), local in self.alone.derived.locals.items():
                for name, value in local.items():
                    if value is not None:
                        self._of.setdefault(self.terms.whole(value.term), {}).setdefault(rank, set()).add(name)
        return self._of.get(term, {})


def _made_of(projection: Projection, term: int) -> tuple[int, int]:
    """Return of how many values that are given a value is made, and minus by how many operators, of as many as are compared.

    Of two values that as many ranks make, the one of more values by fewer operators is what is meant.
    """
    operands = projection.alone.world.terms.operands
    seen, waiting = {term}, [term]
    while waiting and len(seen) < _MOST_TERMS:
        new = set(operands[waiting.pop()]) - seen
        seen |= new
        waiting += new
    given = sum(not operands[each] for each in seen)
    return given, given - len(seen)


def are_of_data(projection: Projection, ranks: Iterable[int]) -> bool:
    """Return whether ranks lie apart along axes alone whose ranks have data of their own."""
    coordinates = [projection.plan.mesh.coordinates(rank) for rank in ranks]
    apart = {axis for axis in projection.axes if len({each[axis] for each in coordinates}) > 1}
    return apart <= batch_axes(projection.plan)


def _results(projection: Projection) -> Iterator[_Meeting]:
    """Yield what ranks that have the same data make of each value that the plan returns whole."""
    alone, apart = projection.alone, batch_axes(projection.plan)
    held: dict[object, dict[int, tuple[Operator, Value]]] = {}
    for rank, environment in alone.derived.environments.items():
        for name in projection.plan.outputs:
            tensor, value = projection.plan.tensors.get(name), environment.get(name)
            made = alone.operators.makers_on(rank).get(name)
            whole = tensor is None or all(map(is_whole, (tensor.placements or {}).values()))
            if value is not None and made is not None and whole:
                held.setdefault((name, _data(projection, apart, rank)), {})[rank] = made[1], value
    yield from (_meeting(projection, of_rank, gradient=False) for of_rank in held.values())


def _final_gradients(projection: Projection) -> Iterator[_Meeting]:
    """Yield what ranks that have the same data make of the final gradient of each weight."""
    apart = batch_axes(projection.plan)
    held: dict[object, dict[int, tuple[Operator, Value]]] = {}
    for step in projection.alone.final_gradients():
        if step.gradient is not None:
            weight = projection.plan.tensors[step.weight].logical or step.weight
            held.setdefault((weight, _data(projection, apart, step.rank)), {})[step.rank] = step.operator, step.gradient
    yield from (_meeting(projection, of_rank, gradient=True) for of_rank in held.values())


def _meeting(projection: Projection, held: Mapping[int, tuple[Operator, Value]], gradient: bool) -> _Meeting:
    whole = projection.alone.world.terms.whole
    alike = len({value.box for _, value in held.values()}) == 1 and all(value.fold is None for _, value in held.values())
    return _Meeting({rank: (operator, whole(value.term)) for rank, (operator, value) in held.items()}, False, alike, gradient)


def _data(projection: Projection, apart: Container[str], rank: int) -> tuple[int, ...]:
    """Return where a rank lies along the axes whose ranks have data of their own."""
    coordinates = projection.plan.mesh.coordinates(rank)
    return tuple(coordinates[axis] for axis in projection.axes if axis in apart)


def _meetings(projection: Projection) -> Iterator[_Meeting]:
    """Yield what ranks put into each collective of different values.

    Of values of different types another rule speaks.
    """
    derived, mesh = projection.alone.derived, projection.plan.mesh
    turns = Counter[tuple[object, int]]()
    found: dict[tuple[bool, object], dict[int, tuple[Communicate, int]]] = {}
    for defect in derived.defects:
        operator = defect.place
        if defect.name not in _DIFFERING or not isinstance(operator, Communicate) or not operator.inputs:
            continue
        group = operator.group
        members = (defect.name, operator.kind, group, mesh.first(defect.rank, group.axes) if group.axes else -1)
        turns[members, defect.rank] += 1
        value = derived.locals.get((defect.rank, defect.segment), {}).get(operator.inputs[0])
        if value is not None:
            is_sum = defect.name == "sum-of-different-values"
            meeting = found.setdefault((is_sum, (members, turns[members, defect.rank])), {})
            meeting[defect.rank] = operator, projection.alone.world.terms.whole(value.term)
    tensors = projection.plan.tensors
    for (is_sum, _), meeting in found.items():
        given = [tensors.get(operator.inputs[0]) for operator, _ in meeting.values()]
        if len({tensor.dtype for tensor in given if tensor is not None}) == 1:
            yield _Meeting(meeting, is_sum)


def _parted(index: Index, usual: int, term: int, ranks: tuple[int, int], meeting: _Meeting) -> _Parted | None:
    """Return the one place where two values of a meeting part, where the difference is one that no plan means."""
    terms = index.terms
    pairs = _pairs(terms, usual, term)
    if len(pairs) == 1:
        (((one, other), taken_by),) = pairs.items()
        if _are_split(index, ranks, (one, other)):
            return _Parted(*taken_by, f"takes `{terms.keys[other][1]}`, and `{terms.keys[one][1]}` on {{others}}")
        if _is_activation_of(terms, one, other):
            return _Parted(*taken_by, f"is made without the `{terms.keys[one][0]}` that it is made with on {{others}}")
        how = _how(terms, one, other, meeting)
        return _Parted(one, other, how) if how else None
    first, *rest = sorted(pairs) or [(0, 0)]
    if rest == [first[::-1]]:
        names = [index.names(rank, made) for rank in ranks for made in first]
        shared = [sorted(names[place] & names[place + 2]) for place in (0, 1)]
        if all(shared):
            how = f"takes `{shared[0][0]}` and `{shared[1][0]}` the other way round than on {{others}}"
            return _Parted(usual, _meeting_place(terms, term, first), how)
    return None


def _are_split(index: Index, ranks: tuple[int, int], pair: tuple[int, int]) -> bool:
    """Return whether both are weights, of each of which both ranks hold a shard: only shards of one go together."""
    plan, heads = index.alone.plan, [index.terms.keys[each] for each in pair]
    one, other = map(plan.mesh.coordinates, ranks)
    apart = [axis for axis in one if one[axis] != other[axis]]
    named = {tensor.logical or name: name for name, tensor in plan.tensors.items() if tensor.role is Role.WEIGHT}
    return all(
        head[0] == "weight" and head[1] in named and len(apart) == 1 and is_split(plan, named[str(head[1])], apart[0])
        for head in heads
    )


def _how(terms: Terms, one: int, other: int, meeting: _Meeting) -> str:
    """Return in words how the second of two values differs from the first; empty where they may be any two.

    Shards may each be scaled by a number of their own, and rounded.
    """
    (times, base), (usual, same) = multiple_of(terms, other), multiple_of(terms, one)
    is_counted = meeting.gradient and is_gradient(terms, base)
    if base == same and times != usual and not is_counted and (meeting.alike or one == base or other == base):
        return f"is {times / usual} times what it is on {{others}}"
    heads = str(terms.keys[one][0]), str(terms.keys[other][0])
    is_cast = terms.operands[other] == (one,) or (meeting.alike and _unrounded(terms, one) == _unrounded(terms, other) == one)
    if is_cast and has_trait(heads[1], Trait.CONVERSION):
        return "is a cast of what it is on {others}"
    if _is_activation_of(terms, other, one):
        return f"is the `{heads[1]}` of what it is on {{others}}"
    alike = terms.operands[one] == terms.operands[other] and terms.shape[one] == terms.shape[other]
    if alike and heads[0] != heads[1] and all(has_trait(head, Trait.ACTIVATION) for head in heads):
        return f"is made by `{heads[1]}`, and by `{heads[0]}` on {{others}}"
    return ""


def _unrounded(terms: Terms, term: int) -> int:
    """Return what a value is a cast of, however often."""
    while len(terms.operands[term]) == 1 and has_trait(str(terms.keys[term][0]), Trait.CONVERSION):
        (term,) = terms.operands[term]
    return term


def _is_activation_of(terms: Terms, one: int, other: int) -> bool:
    """Return whether a value is made of another by an activation alone."""
    return terms.operands[one] == (other,) and has_trait(str(terms.keys[one][0]), Trait.ACTIVATION)


def _pairs(terms: Terms, one: int, other: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the values that stand in each other's place in two values that are otherwise made alike; few, or none.

    Each pair comes with one of the values that are made of the two.
    """
    found, seen = dict[tuple[int, int], tuple[int, int]](), set[tuple[int, int]]()
    waiting = [((one, other), (one, other))]
    while waiting:
        pair, made = waiting.pop()
        if pair in seen or pair[0] == pair[1]:
            continue
        seen.add(pair)
        operands = terms.operands[pair[0]], terms.operands[pair[1]]
        both = [each for each in operands[0] if each in operands[1]]
        rest = [[each for each in side if each not in both] or list(side) for side in operands]
        same = terms.keys[pair[0]] == terms.keys[pair[1]] and len(rest[0]) == len(rest[1]) and rest[0]
        if len(seen) > _MOST_TERMS or len(found) > 2:
            return {}
        if same:
            waiting += ((below, pair) for below in zip(*rest, strict=True))
        else:
            found[pair] = made
    return found


def differ_by_indices(terms: Terms, one: int, other: int) -> bool:
    """Return whether two values are made alike of other indices of the same values, and so differ."""
    pairs = _pairs(terms, one, other)
    ranges = [(terms.operands[left], terms.operands[right], terms.keys[left]) for left, right in pairs]
    return bool(pairs) and all(left == right and has_trait(str(head[0]), Trait.RANGES) for left, right, head in ranges)


def _meeting_place(terms: Terms, term: int, pair: tuple[int, int]) -> int:
    """Return the value that both of a pair come together in, of what a value is made of."""
    within: dict[int, frozenset[int]] = {}
    waiting = [term]
    while waiting:
        each = waiting[-1]
        new = [operand for operand in terms.operands[each] if operand not in within]
        if each not in within and new and each not in pair:
            waiting += new
            continue
        waiting.pop()
        below = frozenset({each}).intersection(pair)
        within[each] = below.union(*(within.get(operand, frozenset()) for operand in terms.operands[each] if each not in pair))
    while True:
        both = [operand for operand in terms.operands[term] if within.get(operand, frozenset()) >= set(pair)]
        if len(both) != 1:
            return term
        term = both[0]
