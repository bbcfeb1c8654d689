"""What an annotated operator, or its gradient, makes of the relations of its operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tvlint.certificate.equal import told
from tvlint.certificate.form import Coefficient, Fold, Open, Part, Relation
from tvlint.certificate.sums import carried, fold_of, moved, total
from tvlint.certificate.tables import Rejected, Tables
from tvlint.certificate.uses import Use
from tvlint.ops.spec import ONE, Names

_MOVES = frozenset({"unsqueeze", "squeeze", "transpose", "permute", "expand"})
"""Operators that move or repeat elements, and compute nothing."""


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
class _Extent:
    """Indices `low:high` of `size` that all operands hold of one name, and whether it is the dimension of the batch."""

    low: int
    high: int
    size: int
    slotted: bool


def made(world: World, use: Use) -> Relation:
    """The relation of the result of one use."""
    extents = extents_of(world, (*use.operands, *use.shapes))
    for name in use.whole & extents.keys():
        own = extents[name]
        if own.slotted or not ((own.low, own.high) == (0, own.size) or name in use.splits or _enough(use, extents, name)):
            raise Rejected(f"`{use.head[0]}` needs a whole dimension and gets {own.low}:{own.high} of {own.size}")
    if sum(own.slotted for own in extents.values()) > 1:
        raise Rejected(f"`{use.head[0]}` pairs the batch with itself")
    for name, stated in use.bound.ranges.items():
        if name not in extents or extents[name].slotted or stated != (extents[name].low, extents[name].high):
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
        *(tuple(sorted(numbers[n] for n in names if n in numbers)) for names in (use.summed, use.bound.averaged, use.whole)),
    )
    slot = next((i for i, own in enumerate(dims) if own.slotted), -1)
    operands = tuple(use.operands[place][1].term for place in places)
    term = told(world.tables, (*use.head, pattern, free), operands, shape, slot)
    box = tuple((own.low, own.high) for own in dims)
    gone = [name for name in (use.summed | use.bound.averaged) - set(use.result) if name in extents and name in numbers]
    counted = {name: _counted(use.bound.masked, extents, name) for name in extents}
    fold = _fold(use, counted, numbers)
    if fold is not None:
        if gone or any(value.parts or value.coefficient != 1 for _, value in use.operands):
            raise Rejected(f"`{use.head[0]}` of some indices needs whole operands")
        return world.tables.relation(term, box, 1, frozenset({Part(frozenset(), 1, frozenset(), fold)}))
    if any(counted[name].low >= counted[name].high for name in gone):
        if any(fold_of(value) is not None for _, value in use.operands):
            raise Rejected(f"`{use.head[0]}` uses a maximum or attention over some indices")
        return world.tables.relation(term, box, 0)
    sums = frozenset(left for name in gone if (left := _open(world, term, numbers[name], counted[name])) is not None)
    factor: Coefficient = 1
    for name in use.bound.averaged:
        own = extents[name]
        parts = own.size * (world.total if own.slotted else 1), (own.high - own.low) * (world.slots if own.slotted else 1)
        factor = factor * Fraction(*parts)
    return _linear(world, use, places, term, box, factor, sums)


def _counted(masked: tuple[str, str] | None, extents: Mapping[str, _Extent], name: str) -> _Extent:
    """The indices of `name` that contribute, counted from the first that does.

    Under a mask column `j` contributes to row `i` if `j <= i`: to rows up to `high` the columns before `high`, and to columns
    from `low` on the rows from `low` on.
    """
    own = extents[name]
    pair = [extents[each] for each in masked if each in extents] if masked is not None and name in masked else []
    if len(pair) < 2 or any(each.slotted for each in pair):
        return own
    rows, columns = pair
    first, last = (min(columns.low, own.size), own.size) if own is rows else (0, min(rows.high, own.size))
    return _Extent(max(own.low, first) - first, max(min(own.high, last), first) - first, last - first, False)


def _enough(use: Use, extents: Mapping[str, _Extent], name: str) -> bool:
    """Whether a mask lets rows stand without later ones, as it counts them from the first, or hides all columns after these."""
    if use.bound.masked is None or name not in use.bound.masked or extents[name].low > 0:
        return False
    counted = _counted(use.bound.masked, extents, name)
    return name == use.bound.masked[0] or 0 < counted.size == counted.high


def _fold(use: Use, counted: Mapping[str, _Extent], numbers: Mapping[str, int]) -> Fold | None:
    """What the result has seen of a dimension that is not summed and not whole; None where that is all that counts."""
    found = []
    for name, kind in use.splits.items():
        if kind == "maps" or name in use.result or name not in counted:
            continue
        own = counted[name]
        if kind not in ("max", "merge"):
            raise Rejected(f"`{use.head[0]}` splits a dimension in a way that the checker does not know")
        if (own.low, own.high) != (0, own.size):
            seen = ((own.low, own.high),) if own.low < own.high else ()
            found.append(Fold(kind, numbers[name] if kind == "max" else 0, seen, own.size))
    if len(found) > 1:
        raise Rejected(f"`{use.head[0]}` takes parts of two dimensions at once")
    return found[0] if found else None


def extents_of(world: World, operands: Sequence[tuple[Names, Relation]]) -> dict[str, _Extent]:
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
    if any(fold_of(value) is not None for _, value in use.operands):
        if len(use.operands) > 1 or use.head[0] not in _MOVES or sums or factor != 1:
            raise Rejected(f"`{use.head[0]}` uses a maximum or attention over some indices as if it were complete")
        return moved(tables, use.operands[0][1], term, 0, box)
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
