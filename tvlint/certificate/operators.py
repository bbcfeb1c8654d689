"""What an annotated operator, or its gradient, makes of the relations of its operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tvlint.certificate.form import Coefficient, Open, Part, Relation
from tvlint.certificate.sums import carried, moved, total
from tvlint.certificate.tables import Rejected, Tables
from tvlint.ops.spec import ONE, Bound, Names


@dataclass(frozen=True, slots=True)
class World:
    """The tables, and how much of the batch a local tensor holds: `slots` of `total`; the flags tell what cuts it."""

    tables: Tables
    slots: int
    total: int
    replicas: bool
    micro_batches: bool

    def local_shape(self, own: Relation) -> tuple[int, ...]:
        """The shape of the local tensor."""
        slot = self.tables.terms[own.term].slot
        return tuple((high - low) * (self.slots if dim == slot else 1) for dim, (low, high) in enumerate(own.box))

    def whole_shape(self, own: Relation) -> tuple[int, ...]:
        """The shape of the whole value, with the whole batch."""
        term = self.tables.terms[own.term]
        return tuple(size * (self.total if dim == term.slot else 1) for dim, size in enumerate(term.shape))


@dataclass(frozen=True, slots=True)
class Use:
    """One use of an operator. `linear` are sets of positions among `operands`; `shapes` are operands of which only the shape
    counts, and which stand behind all others."""

    head: tuple[Any, ...]
    operands: tuple[tuple[Names, Relation], ...]
    shapes: tuple[tuple[Names, Relation], ...]
    result: Names
    summed: frozenset[str]
    averaged: frozenset[str]
    whole: frozenset[str]
    linear: tuple[frozenset[int], ...]
    commutative: bool
    ranges: Mapping[str, tuple[int, int]]
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Extent:
    """Indices `low:high` of `size` that all operands hold of one name, and whether it is the dimension of the batch."""

    low: int
    high: int
    size: int
    slotted: bool


def forward_use(op: str, bound: Bound, output: int, values: Sequence[Relation], sizes: Mapping[str, int]) -> Use:
    """The use that makes output `output`."""
    reach = sorted(bound.row_wise.get(output, range(len(values))))
    real = [i for i in reach if i not in bound.shape_only]
    return Use(
        head=(op, output, bound.attributes),
        operands=tuple((bound.operands[i], values[i]) for i in real),
        shapes=tuple((bound.operands[i], values[i]) for i in reach if i in bound.shape_only),
        result=bound.outputs[output],
        summed=bound.reduced,
        averaged=bound.averaged,
        whole=bound.whole,
        linear=tuple(frozenset(real.index(i) for i in group if i in real) for group in bound.linear if group & set(real)),
        commutative=bound.commutative and len(real) == 2,
        ranges=bound.ranges,
        sizes=sizes,
    )


def gradient_use(op: str, bound: Bound, operand: int, values: Sequence[Relation], given: Mapping[int, Relation]) -> Use | None:
    """The use that makes the gradient of operand `operand` from those of the outputs; None when none of them reaches it.

    It is linear in the gradients together. Where the operator is linear in the operand it needs the operands outside the
    operand's group, otherwise all; of a product, it is linear in each of the others too.
    """
    everything = frozenset(range(len(values)))
    reach = {output: bound.row_wise.get(output, everything) for output in sorted(given)}
    outputs = [output for output, own in reach.items() if operand in own and operand not in bound.zero_gradient]
    if not outputs:
        return None
    group = next((own for own in bound.linear if operand in own), frozenset[int]())
    union = sorted(frozenset[int]().union(*(reach[output] for output in outputs)))
    needs = [i for i in union if i not in group and i not in bound.shape_only]
    operands = [(bound.outputs[output], given[output]) for output in outputs]
    operands += [(bound.operands[i], values[i]) for i in needs]
    shape = (bound.operands[operand], values[operand])
    product = bool(group) and all(len(own) == 1 for own in bound.linear)
    singles = (frozenset({len(outputs) + k}) for k, i in enumerate(needs) if product and frozenset({i}) in bound.linear)
    names = {name for own, _ in (*operands, shape) for name in own} - {ONE}
    exchanged = bound.commutative and bool(group)
    if exchanged and len(values) != 2:
        raise Rejected(f"the gradient of `{op}` of {len(values)} operands is not known to the checker")
    return Use(
        head=(f"{op} gradient", () if exchanged else (operand, tuple(outputs)), bound.attributes),
        operands=tuple(operands),
        shapes=(shape,),
        result=bound.operands[operand],
        summed=frozenset(names - set(bound.operands[operand])),
        averaged=bound.averaged,
        whole=bound.whole,
        linear=(frozenset(range(len(outputs))), *singles),
        commutative=False,
        ranges=bound.ranges,
    )


def made(world: World, use: Use) -> Relation:
    """The relation of the result of one use."""
    extents = _extents(world, (*use.operands, *use.shapes))
    for name in use.whole & extents.keys():
        own = extents[name]
        if own.slotted or (own.low, own.high) != (0, own.size):
            raise Rejected(f"`{use.head[0]}` needs a whole dimension and gets {own.low}:{own.high} of {own.size}")
    if sum(own.slotted for own in extents.values()) > 1:
        raise Rejected(f"`{use.head[0]}` pairs the batch with itself")
    for name, stated in use.ranges.items():
        if name not in extents or stated != (extents[name].low, extents[name].high):
            raise Rejected(f"`{use.head[0]}` states the indices {stated[0]}:{stated[1]}, which its operand does not hold")
    places = list(range(len(use.operands)))
    if use.commutative and use.operands[0][1].term > use.operands[1][1].term:
        places[:2] = [1, 0]
    tensors = [use.operands[place][0] for place in places]
    numbers = _numbered((*tensors, use.result))
    dims = [_dim(use, extents, name) for name in use.result]
    shape = tuple(own.size for own in dims)
    given = {name for names in tensors for name in names}
    free = tuple(own.size for name, own in zip(use.result, dims, strict=True) if name != ONE and name not in given)
    pattern = (
        *(tuple(numbers[name] for name in names) for names in (*tensors, use.result)),
        *(tuple(sorted(numbers[n] for n in names if n in numbers)) for names in (use.summed, use.averaged, use.whole)),
    )
    slot = next((i for i, own in enumerate(dims) if own.slotted), -1)
    operands = tuple(use.operands[place][1].term for place in places)
    term = world.tables.term((*use.head, pattern, free), operands, shape, slot)
    gone = [name for name in (use.summed | use.averaged) - set(use.result) if name in extents and name in numbers]
    sums = frozenset(left for name in gone if (left := _open(world, term, numbers[name], extents[name])) is not None)
    factor: Coefficient = 1
    for name in use.averaged:
        own = extents[name]
        parts = own.size * (world.total if own.slotted else 1), (own.high - own.low) * (world.slots if own.slotted else 1)
        factor = factor * Fraction(*parts)
    return _linear(world, use, places, term, tuple((own.low, own.high) for own in dims), factor, sums)


def _extents(world: World, operands: Sequence[tuple[Names, Relation]]) -> dict[str, _Extent]:
    found: dict[str, _Extent] = {}
    for names, value in operands:
        term = world.tables.terms[value.term]
        if len(names) != len(value.box):
            raise Rejected(f"a tensor of {len(value.box)} dimensions stands where {len(names)} are needed")
        for dim, (name, (low, high)) in enumerate(zip(names, value.box, strict=True)):
            own = _Extent(low, high, term.shape[dim], dim == term.slot)
            if name == ONE and (own.size != 1 or own.slotted):
                raise Rejected("a dimension is broadcast that has more than one element")
            if name != ONE and found.setdefault(name, own) != own:
                raise Rejected(f"indices {found[name].low}:{found[name].high} meet {low}:{high} in one dimension")
    return found


def _numbered(tensors: Sequence[Names]) -> dict[str, int]:
    """The names in order of appearance."""
    order = dict.fromkeys(name for names in tensors for name in names if name != ONE)
    return {ONE: -1, **{name: number for number, name in enumerate(order)}}


def _dim(use: Use, extents: Mapping[str, _Extent], name: str) -> _Extent:
    if name != ONE and name in extents:
        return extents[name]
    size = 1 if name == ONE else use.sizes.get(name, 0)
    if size < 1:
        raise Rejected(f"`{use.head[0]}` makes a dimension of unknown size")
    return _Extent(0, size, size, False)


def _open(world: World, term: int, number: int, own: _Extent) -> Open | None:
    """What is left to be summed of one dimension; None where nothing is."""
    cut = own.slotted and world.slots == 1
    replica, micro_batch = cut and world.replicas, cut and world.micro_batches
    if (own.low, own.high) == (0, own.size) and not replica and not micro_batch:
        return None
    return Open(term, number, own.low, own.high, own.size, replica, micro_batch)


def _linear(
    world: World, use: Use, places: list[int], term: int, box: Any, factor: Coefficient, sums: frozenset[Open]
) -> Relation:
    """The result where some operands are multiples or parts of their terms: one group of operands carries it, linearly."""
    tables = world.tables
    odd = [i for i, (_, value) in enumerate(use.operands) if value.parts or value.coefficient != 1]
    groups = {i: next((own for own in use.linear if i in own), None) for i in odd}
    if any(own is None for own in groups.values()):
        raise Rejected(f"`{use.head[0]}` uses a partial sum or a multiple as if it were the value")
    partial = {own for i, own in groups.items() if use.operands[i][1].parts}
    joint = {own for own in groups.values() if own is not None and len(own) > 1}
    if len(partial | joint) > 1:
        raise Rejected(f"`{use.head[0]}` combines partial sums of different operands")
    carrier = next(iter(partial | joint), None) or frozenset()
    for i in odd:
        if i not in carrier:
            factor = factor * use.operands[i][1].coefficient
    if not carrier:
        if not sums:
            return moved(tables, tables.relation(term, box), term, 0, box, factor)
        return total(tables, term, box, [Part(frozenset({tables.path("part", (), term, 0)}), factor, sums)])
    parts = [part for i in sorted(carrier) for part in carried(tables, use.operands[i][1], term, places.index(i), factor, sums)]
    return total(tables, term, box, parts)
