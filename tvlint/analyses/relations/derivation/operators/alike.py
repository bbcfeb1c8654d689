"""Values that are the same at every index of a dimension, as the part of a longer one that other operands hold.

A rank makes zeros, or expands a value, in the size of what it holds. All indices of such a dimension are alike, so that `n` of
them in a row are indices `a : a + n` of as many as the reference has, for every `a`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tvlint.analyses.relations.derivation.operators.composite_operators import EXPAND, REPEATED, repeated_along
from tvlint.analyses.relations.derivation.state import Machine, RankState, Saved
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer.context import Index
from tvlint.analyses.relations.transfer.memo import Form
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ops.spec import ONE, Family, OpSpec, Trait
from tvlint.ops.table import has_trait


def copies_in_a_row(terms: Terms, term: int, dim: int) -> int:
    """Return how many indices of a dimension in a row are alike, since a value was expanded before views joined dimensions."""
    head, operands = terms.keys[term], terms.operands[term]
    if len(operands) == 1 and len(head) == 2 and has_trait(str(head[0]), Trait.VIEW):
        first = made = 0
        for given, sizes in head[1]:
            if made == dim and not sizes:
                return _copies_of_last(terms, operands[0], range(first, first + given))
            first, made = first + given, made + 1 + len(sizes)
    elif len(operands) == 1 and len(head) == 5:
        before, after, *_ = head[3]
        if after[dim] in before and has_trait(str(head[0]), Trait.VIEW):
            return copies_in_a_row(terms, operands[0], before.index(after[dim]))
        if after[dim] not in before and has_trait(str(head[0]), Trait.BROADCAST):
            return terms.shape[term][dim]
    return 1


def _copies_of_last(terms: Terms, term: int, dims: range) -> int:
    """Return how many indices in a row are alike of what dimensions in a row are joined to."""
    found = 1
    for dim in reversed(dims):
        copies = copies_in_a_row(terms, term, dim)
        found *= copies
        if copies < terms.shape[term][dim]:
            break
    return found


def filled_alike(machine: Machine, spec: OpSpec, form: Form, values: Sequence[Value]) -> tuple[Saved | None, ...] | None:
    """Return what puts tensors of one number in the place of such operands, as long as the others are; None where none is.

    They have no gradient: nothing says which of the numbers it is of.
    """
    world = machine.world
    filled = [_is_filled(world.terms, value) for value in values]
    if not any(filled) or all(filled):
        return None
    bound = spec.bound(form.call(world.local_shape(value) for value in values))
    named = () if bound is None else bound.operands
    if len(named) != len(values):
        return None
    held: dict[str, Index] = {}
    for names, value, alike in zip(named, values, filled, strict=True):
        shape, slot = world.terms.shape[value.term], world.terms.slot[value.term]
        for dim, name in enumerate(names if not alike and len(names) == len(shape) else ()):
            index = Index(*value.box[dim], shape[dim], dim == slot)
            if name != ONE and held.setdefault(name, index) != index:
                return None
    longer = [
        _filled(machine, value, [held.get(name) for name in names]) if alike else None
        for names, value, alike in zip(named, values, filled, strict=True)
    ]
    return tuple(longer) if any(longer) else None


def _is_filled(terms: Terms, value: Value) -> bool:
    op = str(terms.keys[value.term][0])
    return has_trait(op, Trait.FILLED) and not has_trait(op, Trait.LIKE) and not terms.operands[value.term] and value.clean


def _filled(machine: Machine, value: Value, wanted: Sequence[Index | None]) -> Saved | None:
    """Return what gives the part of a tensor of the same number that has these indices; None where that is the value itself."""
    terms = machine.world.terms
    shape, slot = terms.shape[value.term], terms.slot[value.term]
    before = [Index(low, high, shape[dim], dim == slot) for dim, (low, high) in enumerate(value.box)]
    indices = [index or known for index, known in zip(wanted, before, strict=True)]
    slotted = [dim for dim, index in enumerate(indices) if index.slotted]
    if indices == before or len(slotted) > 1:
        return None
    sizes, (op, which, attributes, pattern, _) = tuple(index.size for index in indices), terms.keys[value.term]
    head = (op, which, (*attributes[:-1], sizes), pattern, sizes)
    term = terms.term(head, (), sizes, slotted[0] if slotted else -1)
    longer = machine.world.values.clean(term, tuple((index.low, index.high) for index in indices))
    if machine.world.local_shape(longer) != machine.world.local_shape(value):
        return None
    return Saved("fitted", None, Family.RESHAPE, (value,), (longer,))


def expanded_alike(machine: Machine, rank: RankState, saved: Saved) -> Saved:
    """Return an expansion as the part of a wider one of the reference that other values on the rank hold.

    Which part it is said to be is free. It is one that the rank holds of other values of that size, where that is one only.
    """
    terms, (made,) = machine.world.terms, saved.outputs
    if made is None or not made.clean or not (machine.alone or terms.foreign(made.term)):
        return saved
    if saved.op == REPEATED:
        return _copies_of_one(machine, rank, saved, made)
    for term in _expansions(machine).get(terms.operands[made.term], ()):
        box = _placed(terms, rank, made, term)
        if box is not None:
            outputs = (machine.world.values.clean(term, box),)
            last = tuple((replace(step, outputs=outputs), places) for step, places in saved.steps[-1:])
            return replace(saved, outputs=outputs, steps=(*saved.steps[:-1], *last))
    return saved


def _copies_of_one(machine: Machine, rank: RankState, saved: Saved, made: Value) -> Saved:
    """Return copies of the one element that a rank holds of a dimension as some of more copies that the reference makes of it:
    as many as there are elements of it for each in what else the rank holds, where that is one range only.
    """
    (one,), terms = saved.inputs, machine.world.terms
    if one is None:
        return saved
    dim = next(
        dim
        for dim, (one_size, size) in enumerate(zip(terms.shape[one.term], terms.shape[made.term], strict=True))
        if one_size != size
    )
    (place, _), count, length = one.box[dim], terms.shape[one.term][dim], machine.world.local_shape(made)[dim]
    sizes = {
        size for value in rank.local.values() if value is not None for size in terms.shape[value.term] if size % count == 0
    }
    held = {(size // count, low, high) for size in sizes for low, high in _held(terms, rank, length, size)}
    fitting = [
        (times, (low - place * times, high - place * times))
        for times, low, high in held
        if place * times <= low < high <= (place + 1) * times and high - low < times
    ]
    return repeated_along(machine, one, dim, *fitting[0]) if len(fitting) == 1 else saved


def _expansions(machine: Machine) -> dict[tuple[int, ...], list[int]]:
    """Return what the reference expands, by what it makes them of."""
    terms = machine.world.terms
    if not machine.expansions and terms.sealed > 0:
        for term in range(terms.sealed):
            if terms.keys[term][0] == EXPAND:
                machine.expansions.setdefault(terms.operands[term], []).append(term)
        machine.expansions.setdefault((-1,), [])
    return machine.expansions


def _placed(terms: Terms, rank: RankState, made: Value, wide: int) -> tuple[tuple[int, int], ...] | None:
    """Return which part of the wider expansion a rank's own is said to be; None where it is no part of it, or nothing says."""
    same = terms.keys[made.term][:-1] == terms.keys[wide][:-1] and terms.slot[made.term] == terms.slot[wide]
    if not same or len(terms.shape[made.term]) != len(terms.shape[wide]):
        return None
    box = []
    for dim, (bounds, here, size) in enumerate(zip(made.box, terms.shape[made.term], terms.shape[wide], strict=True)):
        if here == size:
            box.append(bounds)
            continue
        held = set(_held(terms, rank, here, size))
        if bounds != (0, here) or here > size or dim == terms.slot[wide] or len(held) != 1:
            return None
        box.append(held.pop())
    return tuple(box)


def _held(terms: Terms, rank: RankState, length: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of this length that the rank holds of dimensions of this size, but the batch."""
    for value in rank.local.values():
        if value is not None:
            for dim, ((low, high), whole) in enumerate(zip(value.box, terms.shape[value.term], strict=True)):
                if (high - low, whole) == (length, size) and dim != terms.slot[value.term]:
                    yield low, high
