"""Make the sizes of a pair smaller, so that it can be run on numbers.

Every dimension of both plans is a product of factors (`factors.py`). Operators, communication and declarations say which
dimensions are as long as which, and which are so many parts of another. A factor is kept where a plan cuts by it, where an
operator takes positions, ranges or groups, and where a number says how long something is that is not a size here. The others
get smaller, the same in both plans, and the operators are bound anew: each has to mean the same of the smaller operands, by the
same named dimensions and the same attributes, or its dimensions are kept. Replicas that are equal but for their part of the
batch, between which nothing but sums and means goes, are a factor of the batch, and get fewer as well.

So both plans are the same programs of smaller tensors. A right plan is right by identities in which a size stands for itself:
sums over an index are over fewer, means are divided by fewer. It can be right for one size only where a number in one of the
plans is tied to that size (`mul(x, 0.125)` for a mean of eight). So nothing is shrunk where the plans do not state the same
numbers, in the same operators, as often as their micro-batches say. They may state one in other places: a size for which a
number may stand is kept, but for plans that a generator made of the reference, whose operators it takes as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, permutations
from math import isclose, prod
from typing import TypeAlias

from tvlint.analyses.dataflow.step_scope import micro_batches_of
from tvlint.analyses.relations.derivation.given.equal_replicas import equal_replicas
from tvlint.analyses.relations.derivation.given.trusted_inputs import Batch, Inputs, whole_shape
from tvlint.equivalence.sizes.factors import SMALL, Factors, FactorTable
from tvlint.ir.mesh import Axis, Mesh
from tvlint.ir.operators import (
    Backward,
    Communicate,
    Compute,
    Group,
    Literal,
    Operator,
    Receive,
    ReduceGradients,
    Send,
    Value,
)
from tvlint.ir.placement import Shard
from tvlint.ir.plan import GIVEN, Plan, Role, Tensor
from tvlint.ops.spec import ONE, Bound, Family, OpSpec, Trait, UnsupportedError
from tvlint.ops.table import call_in, spec_of

Dims: TypeAlias = list[Factors]
"""The factors of each dimension of a tensor."""

_ALL_OF_A_ROW = frozenset({Trait.SOFTMAX, Trait.NORMALISATION, Trait.CLASS_LOSS, Trait.ATTENTION, Trait.CONTRACTION})
"""Operators that take a row as a whole, whatever its length is."""

_MOVES = frozenset(
    {Trait.VIEW, Trait.RANGES, Trait.JOIN, Trait.APART, Trait.BROADCAST, Trait.SELECTION, Trait.POSITIONAL, Trait.PICK}
)
"""Operators whose numbers are places, counts and sizes."""

_MOST_ROUNDS = 64

_MOST_COUNTED, _ROUNDED = 1e12, 1e-5
"""No number in a plan is made of more elements, and none is further from what it is made of."""

_MOST_NUMBERS, _MOST_LONG = 100, 10
"""Of so many numbers pairs are looked at, and of so many dimensions of a tensor products."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The pair with smaller sizes, and a size of each that was made smaller by what it was."""

    parallel: Plan
    reference: Plan
    sizes: Mapping[int, int]


def shrink(
    parallel: Plan,
    reference: Plan,
    inputs: Inputs,
    reference_inputs: Inputs,
    batch: Batch,
    small: int = SMALL,
    generated: bool = False,
) -> Shrunk | str:
    """Return the pair with sizes as small as both plans allow, or why they are not made smaller.

    A factor that gets smaller is at most `small` afterwards. Of what is `generated` numbers stand where the reference has them.
    """
    unequal = _other_numbers(parallel, reference)
    if unequal:
        return unequal
    kept: set[int] = set()
    axis = _of_replicas(parallel, inputs)
    numbers = frozenset[float]() if generated else _numbers_in(parallel, reference)
    if len(numbers) > _MOST_NUMBERS:
        return "the plans state too many numbers for which sizes may stand"
    counts = _counts_in(numbers)
    for _ in range(_MOST_ROUNDS):
        sizes = _Sizes((parallel, reference), (inputs, reference_inputs), batch, kept, FactorTable(small), axis)
        sizes.keep_counts(counts)
        plans = [sizes.applied(at) for at in (0, 1)]
        changed = {id(operator) for at in (0, 1) for operator in sizes.otherwise_bound(at, plans[at])}
        if not changed - kept:
            return Shrunk(plans[0], plans[1], sizes.smaller) if sizes.smaller else "no size can be made smaller"
        kept |= changed
    return "operators keep their sizes one after the other"


def _of_replicas(plan: Plan, inputs: Inputs) -> Axis | None:
    """Return the axis along which replicas are equal, each with its own part of the batch; None where ranks are named."""
    groups = [*plan.communicators]
    for operator in plan.operators():
        if isinstance(operator, Communicate | ReduceGradients):
            groups.append(operator.group)
        if (isinstance(operator, Send | Receive) and operator.peer.rank is not None) or (
            isinstance(operator, Communicate) and operator.root is not None
        ):
            return None
    found = None if any(group.ranks for group in groups) else equal_replicas(plan, inputs)
    return None if found is None else next(axis for axis in plan.mesh.axes if axis.name == found[0])


def _other_numbers(parallel: Plan, reference: Plan) -> str:
    """Return a number that one of the plans states elsewhere, or more often, than the other; empty where none does."""
    (right,) = _numbers_by_program(reference) or [Counter()]
    times, of = micro_batches_of(parallel), micro_batches_of(reference)
    found: set[object] = set()
    for numbers in _numbers_by_program(parallel):
        for stated, count in numbers.items():
            if count * of > right[stated] * times:
                return f"the plan states numbers of `{stated[0]}` that the reference does not"
        found.update(numbers)
    lacking = next((stated for stated in right if stated not in found), None)
    if lacking is not None:
        return f"the reference states numbers of `{lacking[0]}` that the plan does not"
    for operator in parallel.operators_of(ReduceGradients):
        if operator.divisor not in (0, 1):
            return "a reducer of the plan divides by a number"
    return ""


def _numbers_by_program(plan: Plan) -> list[Counter[tuple[str, Value]]]:
    """Return what the operators of each program state of numbers, as often as they run."""
    found = []
    for program in plan.programs:
        runs = Counter(step.segment for step in program.steps)
        stated: Counter[tuple[str, Value]] = Counter()
        for name, count in runs.items():
            for operator in plan.segments[name].operators:
                numbers = _numbers_of(plan, operator)
                if numbers is not None:
                    stated[numbers] += count
        found.append(stated)
    return found


def _numbers_of(plan: Plan, operator: Operator) -> tuple[str, Value] | None:
    """Return the name of an operator with the numbers that it states and that may be tied to a size; None for none.

    Places and sizes themselves are not, nor is what no size that gets smaller is: zero and one.
    """
    if not isinstance(operator, Compute):
        return None
    both = _bound(plan, operator)
    if both is None:
        literals = (each for each in operator.inputs if isinstance(each, Literal))
        numbers = tuple(_flat((*literals, *operator.attributes.values())))
        return (operator.op, numbers) if numbers else None
    spec, bound = both
    numbers = tuple(_flat(bound.attributes))
    return (spec.name, numbers) if numbers and not spec.traits & _MOVES else None


def _flat(value: object) -> Iterator[int | float]:
    if isinstance(value, Literal):
        yield from _flat(value.value)
    elif isinstance(value, tuple):
        for each in value:
            yield from _flat(each)
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) not in (0, 1):
        yield value


def _counts_in(numbers: Iterable[float]) -> frozenset[int]:
    """Return of how many elements numbers, and two of them together, may be made: as many, a part, a power or root."""
    pairs = [base for one, other in permutations(numbers, 2) for base in (one * other, one / other, 1 / (one * other))]
    bases = [base for number in numbers for base in (number, 1 / number)] + pairs
    powers = (power for base in bases if base < _MOST_COUNTED for power in (base, base**2, base**0.5))
    return frozenset(round(power) for power in powers if isclose(power, round(power), rel_tol=_ROUNDED)) - {0, 1}


def _numbers_in(*plans: Plan) -> frozenset[float]:
    """Return the sizes of the numbers that plans state and that may be made of a count, or of its powers."""
    stated = {abs(number) for plan in plans for of in _numbers_by_program(plan) for _, each in of for number in _flat(each)}
    return frozenset(number for number in stated if _MOST_COUNTED**-2 < number < _MOST_COUNTED**2)


def _loads(plan: Plan, operator: Compute, names: Sequence[str]) -> bool:
    """Return whether an operator takes no tensor and gives inputs alone, whose sizes are those of the batch."""
    given = [plan.tensors[name].role is Role.INPUT for name in names if name in plan.tensors]
    return bool(given) and all(given) and len(names) == len(operator.outputs)


def _bound(plan: Plan, operator: Compute) -> tuple[OpSpec, Bound] | None:
    """Return the row of an operator in the table and what it means of these operands; None where it is not known."""
    spec, tensors = spec_of(operator.op), plan.tensors
    call = call_in(operator, tensors)
    if spec is None or call is None or any(name not in tensors for name in operator.outputs):
        return None
    try:
        bound = spec.bind(replace(call, outputs=tuple(tensors[name].shape for name in operator.outputs)))
        if spec.family is not Family.RESHAPE:
            bound.sizes_of(operator.op, call.shapes)
    except (UnsupportedError, ValueError):
        return None
    return spec, bound


class _Sizes:
    """The factors of all dimensions of both plans."""

    def __init__(
        self,
        plans: tuple[Plan, Plan],
        inputs: tuple[Inputs, Inputs],
        batch: Batch,
        kept: set[int],
        table: FactorTable,
        axis: Axis | None,
    ) -> None:
        self.plans, self.table, self.axis = plans, table, axis
        self.replicas = table.new(axis.size) if axis is not None else ()
        self.smaller: dict[int, int] = {}
        self.dims: list[dict[str, Dims]] = []
        self.wholes: list[dict[str, Dims]] = [{}, {}]
        for plan in plans:
            self.dims.append({name: [self.table.new(n) for n in tensor.shape] for name, tensor in plan.tensors.items()})
        for at in (0, 1):
            self._declared(at)
            self._operators(at, kept)
            self._bindings(at)
            self._exchanges(at)
        self._one_whole(inputs, batch)

    def _declared(self, at: int) -> None:
        """Cut what is given as the plan says that it lies; gradients are as long as what they are gradients of."""
        plan = self.plans[at]
        for name, tensor in plan.tensors.items():
            if tensor.role in GIVEN:
                self.wholes[at][name] = self._whole(plan, tensor, self.dims[at][name])
            for other in (tensor.gradient_of, tensor.gradient):
                if other in plan.tensors:
                    self._alike(at, name, other)

    def _whole(self, plan: Plan, tensor: Tensor, dims: Dims) -> Dims:
        found, whole = [], whole_shape(tensor)
        if len(whole) != len(dims):
            self._keep(dims)
            return [self.table.kept(size) for size in whole]
        for dim, (size, factors) in enumerate(zip(whole, dims, strict=True)):
            local = tensor.shape[dim]
            low = tensor.region[dim][0] if tensor.region is not None else 0
            if tensor.region is None and tensor.placements:
                made = self._placed(plan, tensor, dim, size, factors)
            elif local and size % local == 0 and low % local == 0:
                made = self.table.cut(size // local, factors)
            else:
                made = None
            if made is None:
                self.table.keep(factors)
            found.append(self.table.kept(size) if made is None else made)
        return found

    def _placed(self, plan: Plan, tensor: Tensor, dim: int, size: int, factors: Factors) -> Factors | None:
        """Return the whole of a dimension that axes cut, in equal pieces; None where it is cut otherwise."""
        held = [(axis, (tensor.placements or {}).get(axis.name)) for axis in plan.mesh.axes]
        cuts = [(axis, each) for axis, each in held if isinstance(each, Shard) and each.dim % len(tensor.shape) == dim]
        parted = next((each for _, each in cuts if each.parts or each.order), None)
        local, count = tensor.shape[dim], prod(axis.size for axis, _ in cuts)
        if parted is None:
            parts = [self.replicas if axis == self.axis else self.table.kept(axis.size) for axis, _ in cuts]
            return (*(each for part in parts for each in part), *factors) if local * count == size else None
        pieces = len(parted.order[0]) if parted.order else len(parted.parts)
        if len(cuts) > 1 or (parted.order and parted.parts) or len(set(parted.parts)) > 1 or local * count != size:
            return None
        if local % pieces or any(len(each) != pieces for each in parted.order):
            return None
        piece = self.table.new(local // pieces)
        self.table.equate(self.table.cut(pieces, piece), factors)
        return (*self.table.kept(pieces), *self.table.kept(count), *piece)

    def _one_whole(self, inputs: tuple[Inputs, Inputs], batch: Batch) -> None:
        """Let what has one full name be as long in both plans, and slots of the batch be those of the reference."""
        known: dict[object, Dims] = {}
        for at, plan in enumerate(self.plans):
            for name, dims in self.wholes[at].items():
                tensor = plan.tensors[name]
                key: object = tensor.logical or name
                if tensor.role is Role.INPUT:
                    number = inputs[at].position(tensor)
                    if number is None:
                        continue
                    key = number
                    count = batch.slots if at == 0 else micro_batches_of(plan)
                    dims = [self.table.cut(count, each) if i == batch.dims[number] else each for i, each in enumerate(dims)]
                other = known.setdefault(key, dims)
                if len(other) != len(dims):
                    self._keep((*dims, *other))
                    continue
                for one, two in zip(dims, other, strict=True):
                    self.table.equate(one, two)

    def keep_counts(self, counts: frozenset[int]) -> None:
        """Keep what is as large as one of the counts: a mean of some elements is their sum times a number."""
        tensors = {tuple(dims): None for of in (*self.dims, *self.wholes) for dims in of.values()}
        for dims in (*tensors, (self.replicas,)):
            longer = [factors for factors in dims if self.table.size(factors) > 1]
            if len(longer) > _MOST_LONG and counts:
                self._keep(longer)
                continue
            for held in chain.from_iterable(combinations(longer, count) for count in range(1, len(longer) + 1)):
                if {prod(map(self.table.size, held)) - less for less in (0, 1)} & counts:
                    self._keep(held)

    def _keep(self, dims: Iterable[Factors]) -> None:
        for factors in dims:
            self.table.keep(factors)

    def _alike(self, at: int, one: str, other: str) -> None:
        """Let two tensors of one plan hold the same elements in the same order."""
        here, there = self.dims[at].get(one), self.dims[at].get(other)
        if here is None or there is None:
            return
        shapes = [self.plans[at].tensors[name].shape for name in (one, other)]
        if prod(shapes[0]) != prod(shapes[1]):
            self._keep((*here, *there))
        elif shapes[0] == shapes[1]:
            for factors, others in zip(here, there, strict=True):
                self.table.equate(factors, others)
        else:
            self.table.equate([each for factors in here for each in factors], [each for factors in there for each in factors])

    def _operators(self, at: int, kept: set[int]) -> None:
        for operator in self.plans[at].operators():
            if isinstance(operator, Compute):
                self._compute(at, operator, kept)
            elif isinstance(operator, Backward):
                self._compute(at, operator.forward, kept)
                operands = operator.forward.tensor_operands
                for one, other in (
                    *zip(operator.inputs, operator.forward.outputs, strict=False),
                    *zip(operator.outputs, operands, strict=False),
                ):
                    self._alike(at, one, other)
            elif isinstance(operator, Communicate):
                self._communicate(at, operator)

    def _compute(self, at: int, operator: Compute, kept: set[int]) -> None:
        names = [*operator.tensor_operands, *operator.outputs]
        if _loads(self.plans[at], operator, names):
            return
        held = [self.dims[at][name] for name in names if name in self.dims[at]]
        both = None if id(operator) in kept else _bound(self.plans[at], operator)
        if both is None:
            self._keep(factors for dims in held for factors in dims)
            return
        spec, bound = both
        operands, results = held[: len(held) - len(operator.outputs)], held[len(held) - len(operator.outputs) :]
        if spec.family is Family.RESHAPE:
            flat = [[each for factors in dims for each in factors] for dims in (operands[0], results[0])]
            self.table.equate(*flat)
            return
        by_name: dict[str, Factors] = {}
        for words, dims in (*zip(bound.operands, operands, strict=True), *zip(bound.outputs, results, strict=False)):
            if len(words) != len(dims):
                self._keep(dims)
                continue
            for word, factors in zip(words, dims, strict=True):
                if word != ONE:
                    self.table.equate(by_name.setdefault(word, factors), factors)
        for word in self._words_kept(spec, bound, by_name):
            self.table.keep(by_name.get(word, ()))

    def _words_kept(self, spec: OpSpec, bound: Bound, by_name: Mapping[str, Factors]) -> Iterator[str]:
        """Yield the dimensions of an operator whose sizes are part of what it does."""
        yield from bound.counts
        parts = [word for word in bound.sizes if word in by_name]
        if Trait.APART in spec.traits and len({bound.sizes[word] for word in parts}) == 1:
            (cut,) = (word for word in bound.whole if word not in bound.sizes)
            self._in_equal_parts(by_name[cut], [by_name[word] for word in parts])
        elif Trait.JOIN in spec.traits and len(set(bound.attributes)) == 1 and len(parts) == 1:
            pieces = [by_name[word] for words in bound.operands for word in words if word in bound.whole]
            yield from () if pieces else parts
            if pieces:
                self._in_equal_parts(by_name[parts[0]], pieces)
        elif Trait.BROADCAST not in spec.traits:
            yield from parts
            if spec.evaluate is not None and not spec.traits & _ALL_OF_A_ROW:
                yield from bound.whole
        for word, (low, high) in bound.ranges.items():
            if Trait.ATTENTION in spec.traits or not high > low or low % (high - low):
                yield word
        if bound.masked is not None:
            rows, columns = (by_name.get(word, ()) for word in bound.masked)
            if self.table.size(rows) != self.table.size(columns) or bound.ranges:
                yield from bound.masked
            else:
                self.table.equate(rows, columns)

    def _in_equal_parts(self, whole: Factors, parts: Sequence[Factors]) -> None:
        sizes = {self.table.size(part) for part in parts}
        if len(sizes) > 1 or len(parts) * max(sizes) != self.table.size(whole):
            self._keep((whole, *parts))
            return
        for part in parts[1:]:
            self.table.equate(parts[0], part)
        self.table.equate(self.table.cut(len(parts), parts[0]), whole)

    def _communicate(self, at: int, operator: Communicate) -> None:
        tensors = self.plans[at].tensors
        both = [(one, other) for one, other in zip(operator.inputs, operator.outputs, strict=False)]
        for one, other in both:
            if one not in tensors or other not in tensors:
                continue
            here, there = self.dims[at][one], self.dims[at][other]
            shapes = tensors[one].shape, tensors[other].shape
            if len(here) != len(there) or operator.splits or operator.receive_splits:
                self._keep((*here, *there))
                continue
            for before, after, factors, others in zip(*shapes, here, there, strict=True):
                if before == after:
                    self.table.equate(factors, others)
                elif before and after % before == 0:
                    self.table.equate(self.table.cut(after // before, factors), others)
                elif after and before % after == 0:
                    self.table.equate(factors, self.table.cut(before // after, others))
                else:
                    self._keep((factors, others))

    def _bindings(self, at: int) -> None:
        """Let what a step calls by another name be as long as what the segment calls it."""
        plan = self.plans[at]
        pairs: set[tuple[str, str]] = set()
        for step in plan.steps():
            segment = plan.segments[step.segment]
            names_in, names_out = step.outside(segment)
            pairs.update(zip(segment.inputs, names_in, strict=False))
            pairs.update(zip(segment.outputs, names_out, strict=False))
        for one, other in sorted(pairs):
            if one != other:
                self._alike(at, one, other)

    def _exchanges(self, at: int) -> None:
        """Let what meets on a channel be as long on all ranks."""
        for posts in _channels(self.plans[at]).values():
            for others in posts[1:]:
                for one, other in zip(posts[0], others, strict=False):
                    self._alike(at, one, other)

    def applied(self, at: int) -> Plan:
        """Return a plan with the sizes that are left."""
        plan = self.plans[at]
        tensors = {name: self._tensor(at, tensor) for name, tensor in plan.tensors.items()}
        segments = plan.with_operators(lambda operator: self._operator(at, operator, tensors))
        plan = replace(plan, tensors=tensors, segments=segments)
        return self._with_replicas(plan) if at == 0 else plan

    def _with_replicas(self, plan: Plan) -> Plan:
        """Return the plan with as many replicas as are left."""
        count = self.table.shrunk(self.replicas)
        if self.axis is None or count == self.axis.size:
            return plan
        self.smaller[self.axis.size] = count
        name = self.axis.name
        mesh = Mesh(tuple(Axis(name, count) if axis == self.axis else axis for axis in plan.mesh.axes))
        programs = []
        for program in plan.programs:
            places = map(plan.mesh.coordinates, program.ranks)
            ranks = tuple(mesh.rank(place) for place in places if place[name] < count)
            programs.append(replace(program, ranks=ranks))
        return replace(plan, mesh=mesh, programs=tuple(programs))

    def _tensor(self, at: int, tensor: Tensor) -> Tensor:
        shape = tuple(map(self.table.shrunk, self.dims[at].get(tensor.name, [])))
        self.smaller.update((before, after) for before, after in zip(tensor.shape, shape, strict=True) if before != after)
        if tensor.name not in self.wholes[at]:
            return replace(tensor, shape=shape, whole=None, region=None)
        whole = tuple(map(self.table.shrunk, self.wholes[at][tensor.name]))
        region, placements = tensor.region, tensor.placements
        if region is not None:
            both = zip(region, tensor.shape, shape, strict=True)
            lows = [low // before * after if before != after else low for (low, _), before, after in both]
            region = tuple((low, low + size) for low, size in zip(lows, shape, strict=True))
        if placements is not None:
            placements = {
                axis: replace(each, parts=(whole[each.dim] // len(each.parts),) * len(each.parts))
                if isinstance(each, Shard) and each.parts and len(set(each.parts)) == 1
                else each
                for axis, each in placements.items()
            }
        return replace(tensor, shape=shape, region=region, placements=placements, whole=None if tensor.whole is None else whole)

    def _operator(self, at: int, operator: Operator, tensors: Mapping[str, Tensor]) -> Operator:
        """Return an operator with the sizes that it states made smaller as well."""
        if isinstance(operator, Backward):
            forward = self._stated(at, operator.forward, tensors)
            return operator if forward is operator.forward else replace(operator, forward=forward)
        return self._stated(at, operator, tensors) if isinstance(operator, Compute) else operator

    def _stated(self, at: int, operator: Compute, tensors: Mapping[str, Tensor]) -> Compute:
        plan = self.plans[at]
        names = [*operator.tensor_operands, *operator.outputs]
        if any(name not in tensors or tensors[name].shape != plan.tensors[name].shape for name in names):
            both = _bound(plan, operator)
            if both is not None and both[0].family is not Family.RESHAPE:
                return _with_sizes(plan, operator, *both, tensors)
        return operator

    def otherwise_bound(self, at: int, plan: Plan) -> Iterator[Compute]:
        """Yield the operators of the plan that mean something else in the shrunk one."""
        for name, segment in self.plans[at].segments.items():
            for both in zip(segment.operators, plan.segments[name].operators, strict=True):
                before, after = (each.forward if isinstance(each, Backward) else each for each in both)
                if not isinstance(before, Compute) or not isinstance(after, Compute):
                    continue
                if not _means_the_same(self.plans[at], before, plan, after):
                    yield before


def _with_sizes(plan: Plan, operator: Compute, spec: OpSpec, bound: Bound, tensors: Mapping[str, Tensor]) -> Compute:
    """Return an operator whose sizes and bounds are those of smaller operands and results."""
    operands = operator.tensor_operands
    sizes: dict[Value, Value] = {}
    attributes = dict(operator.attributes)
    for words, name in (*zip(bound.operands, operands, strict=True), *zip(bound.outputs, operator.outputs, strict=False)):
        before, after = plan.tensors[name].shape, tensors[name].shape
        for word, old, new in zip(words, before, after, strict=False):
            if old == new:
                continue
            if word in bound.ranges:
                for attribute in spec.range_attributes.get(word, ()):
                    start = operator.attributes.get(attribute)
                    attributes[attribute] = start // old * new if isinstance(start, int) and old else start
            else:
                sizes[old] = new
        sizes[before], sizes[before[1:]], sizes[before[-1:]] = after, after[1:], after[-1:]
    ranges = {name for word in bound.ranges for name in spec.range_attributes.get(word, ())}
    attributes = {name: value if name in ranges else _replaced(value, sizes) for name, value in attributes.items()}
    inputs = tuple(Literal(_replaced(each.value, sizes)) if isinstance(each, Literal) else each for each in operator.inputs)
    if spec.traits & _MOVES or attributes != operator.attributes:
        return replace(operator, inputs=inputs if spec.traits & _MOVES else operator.inputs, attributes=attributes)
    return operator


def _replaced(value: Value, sizes: Mapping[Value, Value]) -> Value:
    if isinstance(value, bool | float) or value is None:
        return value
    if isinstance(value, tuple) and value not in sizes:
        return tuple(_replaced(each, sizes) for each in value)
    return sizes.get(value, value)


def _means_the_same(plan: Plan, before: Compute, small: Plan, after: Compute) -> bool:
    """Return whether an operator does with smaller tensors what it does with those of the plan."""
    one, two = _bound(plan, before), _bound(small, after)
    if one is None or two is None:
        return one is two
    spec, bound = one
    if spec.family is Family.RESHAPE:
        return True
    shaped = _MOVES - {Trait.RANGES, Trait.SELECTION, Trait.POSITIONAL, Trait.PICK}
    other = two[1]
    if not spec.traits & shaped and other.attributes != bound.attributes:
        return False
    fields = ("operands", "outputs", "reduced", "averaged", "whole", "linear", "indices", "counts", "masked", "shape_only")
    if any(getattr(bound, name) != getattr(other, name) for name in fields) or bound.sizes.keys() != other.sizes.keys():
        return False
    operands = [small.tensors[name].shape for name in after.tensor_operands]
    sizes = other.sizes_of(after.op, operands)
    results = [small.tensors[name].shape for name in after.outputs]
    old = [plan.tensors[name].shape for name in before.outputs]
    return all(
        tuple(sizes.get(word, size) for word, size in zip(words, shape, strict=True)) == shape
        for words, shape, was in zip(other.outputs, results, old, strict=False)
        if len(words) == len(was)
    )


def _channels(plan: Plan) -> dict[object, list[tuple[str, ...]]]:
    """Return the names of what meets in each communication, by its members and how often they met before."""
    found: dict[object, list[tuple[str, ...]]] = {}
    for program in plan.programs:
        for rank in program.ranks:
            met: Counter[object] = Counter()
            for step in program.steps:
                for operator in plan.segments[step.segment].operators:
                    for channel, names in _posts(plan, rank, operator):
                        posts = found.setdefault((channel, met[channel]), [])
                        met[channel] += 1
                        if names not in posts:
                            posts.append(names)
    return found


def _posts(plan: Plan, rank: int, operator: Operator) -> Iterator[tuple[object, tuple[str, ...]]]:
    if isinstance(operator, Communicate):
        members = _members(plan, rank, operator.group)
        if not (operator.splits or operator.receive_splits):
            yield ("collective", members, operator.group.name), operator.inputs
            yield ("results", members, operator.group.name), operator.outputs
    elif isinstance(operator, Send | Receive):
        other = plan.peer(operator.peer, rank)
        ends = (rank, other) if isinstance(operator, Send) else (other, rank)
        yield ("message", ends, operator.tag), (operator.tensor,)
    elif isinstance(operator, ReduceGradients):
        yield ("reducer", _members(plan, rank, operator.group), operator.group.name), operator.weights


def _members(plan: Plan, rank: int, group: Group) -> tuple[int, ...]:
    group = plan.declared(group)
    return tuple(sorted(group.ranks)) if group.ranks else plan.mesh.along(rank, group.axes)
