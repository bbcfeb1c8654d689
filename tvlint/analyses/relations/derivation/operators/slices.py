"""Slices as pieces of what they are taken from, and tensors that are joined as pieces of what they are together.

What a rank cuts out of its own part is some of the pieces that it holds, and what it joins holds the pieces of all. Where the
reference takes a slice of the whole value, the pieces that lie in it are pieces of that slice. In normal forms only, since a
plan may also go on as the reference does with a slice that it writes in another way, and is then wrong nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, combinations, pairwise
from typing import Any

from tvlint.analyses.relations.derivation.state import Machine, Moved, Saved
from tvlint.analyses.relations.terms import layouts
from tvlint.analyses.relations.terms.constant_factors import bare, times
from tvlint.analyses.relations.terms.expressions import is_joined
from tvlint.analyses.relations.terms.ranges import all_of, among_zeros, side_by_side, some_of
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer.context import Mismatch, World
from tvlint.analyses.relations.transfer.index_maps import Pieces, cut, joined, length
from tvlint.analyses.relations.transfer.memo import Case, Form
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.analyses.relations.transfer.reshape import in_ways, reshape, stacked, unstacked
from tvlint.ir.operators import Compute, Literal
from tvlint.ir.plan import Box
from tvlint.ops.families.slicing import ranges_taken
from tvlint.ops.spec import ONE, PREVIOUS, Bound, Call, Family, OpSpec, Shape, Trait, UnsupportedError
from tvlint.ops.table import has_trait, spec_of

_Range = tuple[int, int]


def cut_out(machine: Machine, spec: OpSpec, form: Form, values: tuple[Value, ...], ordinary: Callable[[], Saved]) -> Saved:
    """Return what takes some indices of a tensor, as slices or as one index of a dimension."""
    if Trait.RANGES in spec.traits:
        return _picked(machine, spec, form, values, lambda: _sliced(machine, spec, form, values, ordinary))
    return _picked(machine, spec, form, values, ordinary)


def _sliced(machine: Machine, spec: OpSpec, form: Form, values: Sequence[Value], ordinary: Callable[[], Saved]) -> Saved:
    """Return what a slice makes: the slice that the reference takes too, which is what `ordinary` gives, or a part of its
    operand.
    """
    terms = machine.world.terms
    if not terms.normal:
        return ordinary()
    if terms.sealed < 0:
        _note_cuts(machine, spec, form, values[0])
        return ordinary()
    saved, error = _attempt(ordinary)
    found = taken_by(machine, spec, form, values[0])
    dims = _dims_cut(found[1], machine.world.local_shape(values[0])) if found is not None else set()
    if saved is not None and (_is_known(machine, saved) or is_joined(terms, values[0].term, dims)):
        opaque = [value is not None and terms.keys[bare(terms, value.term)[0]][0] == spec.name for value in saved.outputs]
        whole = _parts(machine, spec, form, values[0]) if any(opaque) else None
        return whole or saved
    return _parts(machine, spec, form, values[0]) or _as_attempted(saved, error)


def sliced_locally(machine: Machine, spec: OpSpec, form: Form, call: Call, value: Value) -> Saved | None:
    """Return what a slice makes whose sizes are those of the local tensor and do not fit the whole one, or what leaves a
    dimension out of which the rank holds one index; None for others.
    """
    if not machine.world.terms.normal or machine.world.terms.sealed < 0:
        return None
    try:
        bound = spec.bind(call)
        if Trait.APART in spec.traits and len(bound.outputs) != len(form.outputs):
            return _parts(machine, spec, form, value)
    except UnsupportedError:
        return _parts(machine, spec, form, value) if Trait.RANGES in spec.traits else _squeezed(machine, spec, form, value)
    return None


def _squeezed(machine: Machine, spec: OpSpec, form: Form, value: Value) -> Saved | None:
    """Return what leaves dimensions out, of one of which the rank holds one index of several."""
    terms, shape = machine.world.terms, machine.world.local_shape(value)
    bound = spec.bound(replace(form.call([shape]), outputs=()))
    if bound is None:
        return None
    whole = terms.shape[terms.whole(value.term)]
    dims = [dim for dim, name in enumerate(bound.operands[0]) if name not in bound.outputs[0] and whole[dim] != 1]
    if len(dims) != 1 or dims[0] == terms.slot[value.term] or not terms.arithmetic:
        return None
    after = tuple(size for size, name in zip(shape, bound.operands[0], strict=True) if name in bound.outputs[0])
    return _one_index(machine, spec, bound, value, dims[0], 0, after)


def _picked(machine: Machine, spec: OpSpec, form: Form, values: tuple[Value, ...], ordinary: Callable[[], Saved]) -> Saved:
    """Return what takes one index of a dimension: a slice one long, without that dimension."""
    world, terms, (value,) = machine.world, machine.world.terms, values
    shape = world.local_shape(value)
    if not terms.arithmetic:
        return ordinary()
    bound = spec.bound(replace(form.call([shape]), outputs=()))
    if bound is None:
        return ordinary()
    if Trait.APART in spec.traits and len(bound.outputs[0]) == len(shape) - 1:
        return _taken_apart(machine, spec, bound, value) or ordinary()
    dims = [dim for dim, entry in enumerate(bound.attributes) if entry is not None]
    if len(dims) != 1 or len(bound.outputs) != 1:
        return ordinary()
    (dim,) = dims
    place = bound.attributes[dim]
    if isinstance(place, tuple) and len(place) == 3 and len(bound.outputs[0]) == len(shape):
        return _every_nth(machine, spec, bound, value, dim, place) or ordinary()
    if len(bound.outputs[0]) != len(shape) - 1 or ONE in bound.outputs[0]:
        return ordinary()
    if not isinstance(place, int) or isinstance(place, bool) or dim == terms.slot[value.term]:
        return ordinary()
    if terms.sealed < 0:
        terms.cuts.setdefault(shape[dim], set()).add((place, place + 1))
    found = _one_index(machine, spec, bound, value, dim, place, (*shape[:dim], *shape[dim + 1 :]))
    return ordinary() if found is None else found


def _taken_apart(machine: Machine, spec: OpSpec, bound: Bound, value: Value) -> Saved | None:
    """Return each index of a dimension, without that dimension; None where one of them has no form that is known."""
    terms, shape = machine.world.terms, machine.world.local_shape(value)
    (dim,) = (dim for dim, name in enumerate(bound.operands[0]) if name in bound.whole)
    if dim == terms.slot[value.term]:
        return None
    if terms.sealed < 0:
        terms.cuts.setdefault(shape[dim], set()).update((place, place + 1) for place in range(shape[dim]))
    after = (*shape[:dim], *shape[dim + 1 :])
    picked = [_one_index(machine, spec, bound, value, dim, place, after) for place in range(shape[dim])]
    known = [saved for saved in picked if saved is not None]
    if terms.sealed >= 0 and (len(known) < len(picked) or not all(_is_known(machine, saved) for saved in known)):
        apart = [_apart(machine.world, value, dim, place, place + 1) for place in range(shape[dim])]
        outputs = tuple(_without(machine.world, each, after) for each in apart if each is not None)
        if len(outputs) == len(apart) and None not in outputs:
            places = tuple((place, place + 1) for place in range(shape[dim]))
            moved = Moved(dim, False, places, ((0, shape[dim]),) * shape[dim], drops=True)
            return Saved(spec.name, bound, Family.INDEXED, (value,), outputs, moved=moved)
    if len(known) < len(picked):
        return None
    steps = tuple((saved, (0,)) for saved in known)
    return Saved(spec.name, bound, Family.INDEXED, (value,), tuple(saved.outputs[0] for saved in known), steps)


def _without(world: World, value: Value, after: Shape) -> Value | None:
    """Return a value without a dimension that is one long; None where that is no view of it."""
    try:
        return reshape(world, value, after)
    except Mismatch:
        return None


def _every_nth(machine: Machine, spec: OpSpec, bound: Bound, value: Value, dim: int, taken: tuple[Any, ...]) -> Saved | None:
    """Return every `step`-th index of a dimension: one index of the inner of two dimensions that it is viewed as.

    None where a slice takes others, or where the view has no form that is known.
    """
    world, (start, stop, step) = machine.world, taken
    shape = world.local_shape(value)
    count, rest = divmod(shape[dim], max(step, 1))
    if step < 2 or rest or start >= step or len(range(start, stop, step)) != count or dim == world.terms.slot[value.term]:
        return None
    if world.terms.sealed < 0:
        world.terms.cuts.setdefault(step, set()).add((start, start + 1))
    apart = reshape(world, value, (*shape[:dim], count, step, *shape[dim + 1 :]))
    view = Saved("view", None, Family.RESHAPE, (value,), (apart,))
    picked = _one_index(machine, spec, bound, apart, dim + 1, start, (*shape[:dim], count, *shape[dim + 1 :]))
    if picked is None:
        return None
    return Saved(spec.name, bound, Family.INDEXED, (value,), picked.outputs, ((view, (0,)), (picked, (PREVIOUS,))))


def _one_index(machine: Machine, spec: OpSpec, bound: Bound, value: Value, dim: int, place: int, after: Shape) -> Saved | None:
    """Return one index of a dimension of a tensor, viewed without that dimension as `after`; None where it is none."""
    found = _slice_of_joined(machine, spec, bound, value, dim, place, after)
    if found is not None:
        return found
    world, ways = machine.world, machine.world.values.pieces_of(value)
    ((start, stop),) = cut(ways[dim], place, place + 1)
    term = None if value.fold is not None else some_of(world.terms, world.terms.whole(value.term), dim, start, stop)
    if term is None:
        return None
    held = world.values.with_pieces(value, (*ways[:dim], ((start, stop),), *ways[dim + 1 :]))
    part = moved_into(world, held, term, dim, start)
    moved = Moved(dim, False, ((place, place + 1),), ((start, stop),))
    first = Saved(spec.name, bound, Family.INDEXED, (value,), (part,), moved=moved)
    rest = reshape(world, part, after)
    second = Saved("view", None, Family.RESHAPE, (part,), (rest,))
    return Saved(spec.name, bound, Family.INDEXED, (value,), (rest,), ((first, (0,)), (second, (PREVIOUS,))))


def _slice_of_joined(
    machine: Machine, spec: OpSpec, bound: Bound, value: Value, dim: int, place: int, after: Shape
) -> Saved | None:
    """Return one index of a dimension as a slice of that dimension joined with the next, where the reference has that slice."""
    world, terms = machine.world, machine.world.terms
    shape = world.local_shape(value)
    if dim + 1 >= len(shape) or terms.sealed < 0:
        return None
    try:
        whole = reshape(world, value, (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :]))
    except Mismatch:
        return None
    start, stop = place * shape[dim + 1], (place + 1) * shape[dim + 1]
    ways = world.values.pieces_of(whole)
    taken = cut(ways[dim], start, stop)
    part, indices = _within(world, world.values.with_pieces(whole, (*ways[:dim], taken, *ways[dim + 1 :])), dim)
    if indices == (0, terms.shape[terms.whole(whole.term)][dim]):
        return None
    moved = Moved(dim, False, ((start, stop),), (indices,))
    view = Saved("view", None, Family.RESHAPE, (value,), (whole,))
    sliced = Saved(spec.name, bound, Family.INDEXED, (whole,), (part,), moved=moved)
    rest = reshape(world, part, after)
    again = Saved("view", None, Family.RESHAPE, (part,), (rest,))
    steps = ((view, (0,)), (sliced, (PREVIOUS,)), (again, (PREVIOUS,)))
    return Saved(spec.name, bound, Family.INDEXED, (value,), (rest,), steps)


def side_by_side_pieces(
    machine: Machine,
    bound: Bound,
    values: tuple[Value, ...],
    ordinary: Callable[[], Saved],
    evaluate: Callable[[Form, tuple[Value, ...]], Saved],
) -> Saved:
    """Return what joins tensors: as the reference joins them, which is what `ordinary` gives, or the pieces that all hold of
    one value, or of their values side by side.
    """
    terms = machine.world.terms
    dim = next((dim for dim, names in enumerate(zip(*bound.operands, strict=True)) if len(set(names)) > 1), None)
    stacks = dim is None and len(bound.outputs) == 1 and len(bound.outputs[0]) == len(bound.operands[0]) + 1
    if not terms.arithmetic or (dim is None and not stacks):
        return ordinary()
    if terms.sealed < 0:
        as_reference = ordinary()
        if dim is not None:
            _note_joined(machine.world, values, as_reference.outputs[0], dim)
        return as_reference
    saved, error = _attempt(ordinary)
    if saved is not None and _is_known(machine, saved):
        return saved
    found = _piled(machine, bound, values, evaluate) if dim is None else _side_by_side(machine.world, bound, values, dim)
    return _as_attempted(saved, error) if found is None else found


def _piled(
    machine: Machine, bound: Bound, values: tuple[Value, ...], evaluate: Callable[[Form, tuple[Value, ...]], Saved]
) -> Saved | None:
    """Return what tensors are along a new dimension: side by side in one that each is given."""
    dim = next(dim for dim, name in enumerate(bound.outputs[0]) if name not in bound.operands[0])
    form = machine.cases.form(Compute("torch.unsqueeze", ("", Literal(dim)), ("",)), {})
    given = [_attempt(partial(evaluate, form, (value,)))[0] for value in values]
    views = [(saved, (place,)) for place, saved in enumerate(given) if saved is not None]
    wide = tuple(saved.outputs[0] for saved, _ in views if saved.outputs[0] is not None)
    joined = _side_by_side(machine.world, bound, wide, dim) if len(wide) == len(values) else None
    if joined is None:
        return None
    last = (joined, tuple(range(-len(values), 0)))
    return Saved("stack", bound, Family.INDEXED, values, joined.outputs, (*views, last))


def _side_by_side(world: World, bound: Bound, values: tuple[Value, ...], dim: int) -> Saved | None:
    """Return the pieces that tensors hold of one value, or of their values side by side; None where that has no form."""
    ways = [world.values.pieces_of(value) for value in values]
    outside = {(*way[:dim], *way[dim + 1 :]) for way in ways}
    slotted = any(world.terms.slot[world.terms.whole(value.term)] == dim for value in values)
    if slotted or any(value.fold is not None for value in values):
        return None
    if len(outside) > 1:
        found = _stacked_together(world, values, dim)
    else:
        found = of_one(world, values, ways, dim) or _of_joined(world, values, ways, dim)
        found = found or _of_several(world, values, ways, dim)
    if found is None:
        return None
    made, indices = found
    ends = [0, *accumulate(length(way[dim]) for way in ways)]
    moved = Moved(dim, True, tuple(pairwise(ends)), indices)
    return Saved("cat", bound, Family.INDEXED, values, (made,), moved=moved)


def as_slices(
    machine: Machine, values: Sequence[Value], evaluate: Callable[[Form, tuple[Value, ...]], Saved]
) -> Iterator[tuple[Saved | None, ...]]:
    """Yield ways to take what the rank holds of a dimension of an operand for all of a slice, which is a value of its own.

    Each says for every operand what cuts it, if anything does; first one dimension of one operand is cut, then each. Of a plan
    that is derived alone, one index of a dimension is a slice.
    """
    world = machine.world
    if not machine.alone and (not world.terms.arithmetic or world.terms.sealed < 0):
        return
    found: list[tuple[int, Saved]] = []
    for place, value in enumerate(values):
        for dim in range(len(value.box)):
            cut = _as_index(machine, value, dim, evaluate) if machine.alone else _as_slice(world, value, dim)
            if cut is not None:
                found.append((place, cut))
                yield tuple(cut if index == place else None for index in range(len(values)))
    for one, other in combinations(found, 2):
        if one[0] != other[0]:
            chosen = dict((one, other))
            yield tuple(chosen.get(place) for place in range(len(values)))


def _as_index(machine: Machine, value: Value, dim: int, evaluate: Callable[[Form, tuple[Value, ...]], Saved]) -> Saved | None:
    """Return what takes the one index that the rank holds of a dimension out of all of the value; None where it holds more."""
    terms, (low, high) = machine.world.terms, value.box[dim]
    whole = terms.whole(value.term) == value.term and value.clean
    if high - low != 1 or terms.shape[value.term][dim] == 1 or dim == terms.slot[value.term] or not whole:
        return None
    every = machine.world.values.with_box(value, (*value.box[:dim], (0, terms.shape[value.term][dim]), *value.box[dim + 1 :]))
    operands = ("", Literal(dim), Literal(low), Literal(1))
    return evaluate(machine.cases.form(Compute("torch.narrow", operands, ("",)), {}), (every,))


def _as_slice(world: World, value: Value, dim: int) -> Saved | None:
    """Return what cuts the indices that the rank holds of a dimension; None where these are all, or more than one piece."""
    terms, ways = world.terms, world.values.pieces_of(value)
    whole = terms.whole(value.term)
    if len(ways[dim]) != 1 or value.fold is not None or dim == terms.slot[value.term]:
        return None
    ((start, stop),) = ways[dim]
    if (start, stop) == (0, terms.shape[whole][dim]):
        return None
    term = some_of(terms, whole, dim, start, stop)
    if term is None:
        return None
    made = moved_into(world, value, term, dim, start)
    moved = Moved(dim, False, ((0, stop - start),), ((start, stop),))
    return Saved("slice", None, Family.INDEXED, (value,), (made,), moved=moved)


def as_all_of(world: World, value: Value | None, gradient: Value) -> Value:
    """Return the gradient of all of a value as all of a slice, where it is some indices of something longer."""
    terms = world.terms
    if value is None or not terms.arithmetic or terms.sealed < 0 or len(value.box) != len(gradient.box):
        return gradient
    of_value, shape = world.values.pieces_of(value), terms.shape[terms.whole(value.term)]
    for dim, size in enumerate(shape):
        longer = terms.shape[terms.whole(gradient.term)][dim] != size
        cut = _as_slice(world, gradient, dim) if longer and of_value[dim] == ((0, size),) else None
        gradient = gradient if cut is None or cut.outputs[0] is None else cut.outputs[0]
    return gradient


def counted(machine: Machine, case: Case, values: tuple[Value, ...], saved: Saved) -> Saved:
    """Return positions that the reference counts further as some of these: `arange(4, 8)`, or `arange(4) + 4`."""
    terms, (made,) = machine.world.terms, saved.outputs
    if made is None or not terms.normal:
        return saved
    attributes = case.bound.attributes
    if not values and terms.sealed < 0 and isinstance(attributes[0], int) and isinstance(attributes[1], int):
        terms.counted[made.term] = (attributes[0], attributes[1], attributes[2])
    if not terms.foreign(made.term):
        return saved
    if not values:
        found = _positions(terms, made.term, attributes) or _of_all(machine, made.term, attributes)
    else:
        found = _moved_on(terms, case.name, attributes, values[0])
    return saved if found is None else replace(saved, outputs=(machine.world.values.clean(*found),))


def _positions(terms: Terms, positions: int, attributes: tuple[Any, ...]) -> tuple[int, Box] | None:
    """Return counted positions as some of those that the reference counts."""
    start, step, kind, _ = attributes
    for term, (first, steps, dtype) in terms.counted.items():
        place, rest = divmod(start - first, step) if (steps, dtype) == (step, kind) else (0, 1)
        if not rest and 0 <= place <= place + terms.shape[positions][0] <= terms.shape[term][0]:
            return term, ((place, place + terms.shape[positions][0]),)
    return None


def _of_all(machine: Machine, term: int, attributes: tuple[Any, ...]) -> tuple[int, Box] | None:
    """Return positions that are counted in ones as some of all that the ranks count, from zero on."""
    terms, (start, step, kind, _) = machine.world.terms, attributes
    stop = start + terms.shape[term][0]
    if machine.last_position < 0:
        machine.last_position = max(_ends_of_positions(machine), default=0)
    last = max(stop, machine.last_position)
    if step != 1 or start < 0:
        return None
    op, which, _, pattern, sizes = terms.keys[term]
    whole = terms.term((op, which, (0, 1, kind, (last,)), pattern, (last,) if sizes else ()), (), (last,), terms.slot[term])
    terms.counted[whole] = (0, 1, kind)
    return whole, ((start, stop),)


def _ends_of_positions(machine: Machine) -> Iterator[int]:
    """Yield where the plan ends to count positions."""
    for operator in machine.plan.operators():
        spec = spec_of(operator.op) if isinstance(operator, Compute) else None
        if spec is None or Trait.POSITIONS not in spec.traits or not isinstance(operator, Compute):
            continue
        given = tuple(operand for operand in operator.inputs if isinstance(operand, Literal))
        try:
            first, step, _, sizes = spec.bind(Call(operator.op, given, operator.attributes)).attributes
        except UnsupportedError:
            continue
        if isinstance(first, int) and isinstance(step, int) and isinstance(sizes, tuple) and isinstance(sizes[0], int):
            yield first + step * sizes[0]


def _moved_on(terms: Terms, op: str, attributes: tuple[Any, ...], value: Value) -> tuple[int, Box] | None:
    """Return positions to which a number is added as others of those that the reference counts."""
    if value.term not in terms.counted or not value.clean or attributes[:2] != (1, 1) or type(attributes[2]) is not int:
        return None
    (low, high), (_, step, _) = value.box[0], terms.counted[value.term]
    places, rest = divmod(-attributes[2] if has_trait(op, Trait.DIFFERENCE) else attributes[2], step)
    fits = not rest and 0 <= low + places <= high + places <= terms.shape[value.term][0]
    return (value.term, ((low + places, high + places),)) if fits else None


def _stacked_together(world: World, values: Sequence[Value], dim: int) -> tuple[Value, tuple[_Range, ...]] | None:
    """Return what pieces of another dimension are along `dim`, and all indices of it for each; None for others."""
    made = stacked(world, values, dim)
    return None if made is None else (made, (made.box[dim],) * len(values))


def of_one(
    world: World, values: Sequence[Value], ways: Sequence[tuple[Pieces, ...]], dim: int, again: bool = False
) -> tuple[Value, tuple[_Range, ...]] | None:
    """Return what tensors are together that hold pieces of one value, and all indices of it for each; None for others.

    Each has to hold other pieces, but with `again`, which is for plans that are derived alone: a proof takes no value for one
    that it has twice.
    """
    whole, first = world.terms.whole, values[0]
    if any(
        (whole(value.term), value.leaves, value.coefficient) != (whole(first.term), first.leaves, first.coefficient)
        for value in values
    ):
        return None
    pieces = joined(bounds for way in ways for bounds in way[dim])
    if not again and any(low < before for (_, before), (low, _) in pairwise(sorted(pieces))):
        return None
    everything = ((0, world.terms.shape[whole(first.term)][dim]),) * len(values)
    return world.values.with_pieces(first, (*ways[0][:dim], pieces, *ways[0][dim + 1 :])), everything


def _note_joined(world: World, values: Sequence[Value], made: Value | None, dim: int) -> None:
    """Note which indices each value has of what the reference joins."""
    terms = world.terms
    if made is None or not _are_alike((*values, made)):
        return
    wholes = [terms.whole(value.term) for value in values]
    if any(terms.slot[term] == dim for term in wholes):
        return
    (joined_term, constant), parts = bare(terms, terms.whole(made.term)), [bare(terms, term) for term in wholes]
    if any(factor != constant for _, factor in parts):
        return
    starts = accumulate((terms.shape[term][dim] for term in wholes), initial=0)
    for (part, _), start in zip(parts, starts, strict=False):
        terms.joins.setdefault(part, []).append((joined_term, dim, start))


def _are_alike(values: Sequence[Value]) -> bool:
    """Return whether values are one number times their terms, with no sum pending."""
    return all(value.leaves == () and value.fold is None and value.coefficient == values[0].coefficient for value in values)


def _of_joined(
    world: World, values: Sequence[Value], ways: Sequence[tuple[Pieces, ...]], dim: int
) -> tuple[Value, tuple[_Range, ...]] | None:
    """Return what tensors are that the reference joins with others, one behind the other too; None where it joins none so."""
    terms = world.terms
    wholes = [terms.whole(value.term) for value in values]
    sizes = [terms.shape[term][dim] for term in wholes]
    if not _are_alike(values) or any(way[dim] != ((0, size),) for way, size in zip(ways, sizes, strict=True)):
        return None
    parts = [bare(terms, term) for term in wholes]
    if any(constant != parts[0][1] for _, constant in parts):
        return None
    for whole, along, start in terms.joins.get(parts[0][0], ()):
        ends = [*accumulate(sizes, initial=start)]
        known = [terms.joins.get(part, ()) for part, _ in parts]
        if along == dim and all((whole, dim, at) in places for at, places in zip(ends, known, strict=False)):
            scaled = times(terms, whole, parts[0][1])
            made = world.values.multiple(scaled, tuple((0, size) for size in terms.shape[whole]), values[0].coefficient)
            pieces = (*ways[0][:dim], ((start, ends[-1]),), *ways[0][dim + 1 :])
            return world.values.with_pieces(made, pieces), tuple(pairwise(ends))
    return None


def _of_several(
    world: World, values: Sequence[Value], ways: Sequence[tuple[Pieces, ...]], dim: int
) -> tuple[Value, tuple[_Range, ...]] | None:
    """Return what tensors are of their whole values side by side, and which indices of that each value is; None where that has
    no form.
    """
    terms = world.terms
    wholes = [terms.whole(value.term) for value in values]
    if not all(value.leaves == () and value.coefficient == 1 for value in values):
        return None
    ends = [0, *accumulate(terms.shape[term][dim] for term in wholes)]
    term = side_by_side(terms, [*zip(wholes, ends, strict=False)], dim, ends[-1])
    if term is None:
        return None
    indices = tuple(pairwise(ends))
    terms.cuts.setdefault(ends[-1], set()).update(indices)
    pieces = joined((low + start, high + start) for way, start in zip(ways, ends, strict=False) for low, high in way[dim])
    made = world.values.clean(term, tuple((0, size) for size in terms.shape[term]))
    return world.values.with_pieces(made, (*ways[0][:dim], pieces, *ways[0][dim + 1 :])), indices


def _attempt(ordinary: Callable[[], Saved]) -> tuple[Saved | None, Exception | None]:
    try:
        return ordinary(), None
    except (Mismatch, UnsupportedError) as error:
        return None, error


def _as_attempted(saved: Saved | None, error: Exception | None) -> Saved:
    if error is not None:
        raise error
    assert saved is not None
    return saved


def _is_known(machine: Machine, saved: Saved) -> bool:
    return not any(value is None or machine.world.terms.foreign(value.term) for value in saved.outputs)


def taken_by(machine: Machine, spec: OpSpec, form: Form, value: Value) -> tuple[Bound, tuple[tuple[_Range, ...], ...]] | None:
    """Return the annotation of the call on the local tensor, and the places that each result has of it, where it has any."""
    world = machine.world
    shape, slot = world.local_shape(value), world.terms.slot[value.term]
    bound = spec.bound(replace(form.call([shape]), outputs=()))
    if bound is None:
        return None
    taken = ranges_taken(bound, shape)
    if taken is None or len(taken) != len(form.outputs):
        return None
    if slot >= 0 and any(ranges[slot] != (0, shape[slot]) for ranges in taken):
        return None
    return bound, taken


def _dims_cut(taken: Sequence[Sequence[_Range]], shape: Shape) -> set[int]:
    """Return the dimensions of which not all is taken."""
    return {dim for ranges in taken for dim, each_range in enumerate(ranges) if each_range != (0, shape[dim])}


def _note_cuts(machine: Machine, spec: OpSpec, form: Form, value: Value) -> None:
    """Note the ranges of dimensions that the reference takes."""
    found = taken_by(machine, spec, form, value)
    for ranges in found[1] if found is not None else ():
        for size, each_range in zip(machine.world.local_shape(value), ranges, strict=True):
            if each_range != (0, size):
                machine.world.terms.cuts.setdefault(size, set()).add(each_range)


def _parts(machine: Machine, spec: OpSpec, form: Form, value: Value) -> Saved | None:
    """Return the slices of the local tensor as the pieces that it holds; None where they are none."""
    found = taken_by(machine, spec, form, value)
    if found is None:
        return None
    bound, taken = found
    world, shape = machine.world, machine.world.local_shape(value)
    slot, ways = world.terms.slot[value.term], world.values.pieces_of(value)
    dims = _dims_cut(taken, shape)
    held = [tuple(way if dim == slot else cut(way, *ranges[dim]) for dim, way in enumerate(ways)) for ranges in taken]
    outputs = [world.values.with_pieces(value, pieces) for pieces in held]
    if len(dims) != 1:
        return Saved(spec.name, bound, Family.INDEXED, (value,), tuple(outputs))
    (dim,) = dims
    apart = [_apart(world, value, dim, *ranges[dim]) for ranges in taken]
    known = tuple(each_value for each_value in apart if each_value is not None)
    if len(known) == len(taken):
        moved = Moved(dim, False, tuple(ranges[dim] for ranges in taken), ((0, shape[dim]),) * len(taken))
        return Saved(spec.name, bound, Family.INDEXED, (value,), known, moved=moved)
    within = [_within(world, output, dim) for output in outputs]
    moved = Moved(dim, False, tuple(ranges[dim] for ranges in taken), tuple(indices for _, indices in within))
    return Saved(spec.name, bound, Family.INDEXED, (value,), tuple(each_value for each_value, _ in within), moved=moved)


def _apart(world: World, value: Value, dim: int, start: int, stop: int) -> Value | None:
    """Return a slice as a piece of another dimension that was stacked along `dim`; None where it is none."""
    count, rest = divmod(world.local_shape(value)[dim], stop - start)
    return unstacked(world, value, dim, start // (stop - start), count) if not rest and not start % (stop - start) else None


def _within(world: World, value: Value, dim: int) -> tuple[Value, _Range]:
    """Return the pieces of a value as those of a slice of it that the reference has, and which indices that has; all, and the
    value itself, where it has none.
    """
    terms, pieces = world.terms, world.values.pieces_of(value)
    whole = terms.whole(value.term)
    size = terms.shape[whole][dim]
    low, high = min(low for low, _ in pieces[dim]), max(high for _, high in pieces[dim])
    ranges = sorted((stop - start, start, stop) for start, stop in terms.cuts.get(size, ()) if start <= low and high <= stop)
    for _, start, stop in ranges if value.fold is None and terms.arithmetic else ():
        term = some_of(terms, whole, dim, start, stop)
        if term is not None and (terms.foreign(whole) or not layouts.is_foreign(terms, term)):
            return moved_into(world, value, term, dim, start), (start, stop)
    return value, (0, size)


def moved_into(world: World, value: Value, term: int, dim: int, start: int) -> Value:
    """Return the same elements as pieces of another term, in which index `start` of the dimension is the first."""
    ways = world.values.pieces_of(value)
    shifted = tuple((low - start, high - start) for low, high in ways[dim])
    return in_ways(world, value, term, (*ways[:dim], shifted, *ways[dim + 1 :]))


def moved_gradient(machine: Machine, saved: Saved, position: int, gradients: Mapping[int, Value]) -> Value:
    """Return the gradient of an operand of what cuts or joins local tensors. Raises Mismatch where it is not known."""
    assert saved.moved is not None
    if saved.moved.joins:
        return _gradient_of_joined(machine.world, saved.moved, position, gradients[0])
    return _gradient_of_slices(machine.world, saved, saved.moved, gradients)


def _gradient_of_joined(world: World, moved: Moved, position: int, gradient: Value) -> Value:
    """Return the gradient of one of the tensors that are joined: its places of the gradient of all."""
    dim, (start, stop), terms = moved.dim, moved.indices[position], world.terms
    apart = _apart(world, gradient, dim, *moved.places[position])
    if apart is not None:
        return apart
    ways = world.values.pieces_of(gradient)
    value = world.values.with_pieces(gradient, (*ways[:dim], cut(ways[dim], *moved.places[position]), *ways[dim + 1 :]))
    whole = terms.whole(gradient.term)
    if (start, stop) == (0, terms.shape[whole][dim]):
        return value
    term = some_of(terms, whole, dim, start, stop)
    if term is None:
        raise Mismatch("undecided-gradient", "joins values whose gradients have no form that is known", refutes=False)
    return moved_into(world, value, term, dim, start)


def _gradient_of_slices(world: World, saved: Saved, moved: Moved, gradients: Mapping[int, Value]) -> Value:
    """Return the gradient of what is cut: the gradients of its slices, each among zeros.

    Slices of one range of the whole value are taken together; they have to have all that the tensor holds of that range.
    """
    (operand,), dim, values = saved.inputs, moved.dim, world.values
    assert operand is not None
    if moved.drops:
        gradients = {output: _with_unit(world, gradient, dim) for output, gradient in gradients.items()}
    ways, found = values.pieces_of(operand), list[Value]()
    together = stacked(world, [gradients[output] for output in sorted(gradients, key=lambda output: moved.places[output])], dim)
    if together is not None and together.box == operand.box:
        return together
    if moved.drops:
        raise Mismatch("undecided-gradient", "has gradients of some of the parts of what was stacked", refutes=False)
    groups: dict[_Range, list[int]] = {}
    for output in sorted(gradients, key=lambda output: moved.places[output]):
        groups.setdefault(moved.indices[output], []).append(output)
    for (start, stop), outputs in groups.items():
        first, taken = gradients[outputs[0]], [values.pieces_of(gradients[output])[dim] for output in outputs]
        here = joined((max(low, start), min(high, stop)) for low, high in ways[dim] if low < stop and start < high)
        whole = world.terms.whole
        alike = {(whole(value.term), value.leaves, value.coefficient) for value in (gradients[output] for output in outputs)}
        if (
            len(alike) > 1
            or first.fold is not None
            or joined((low + start, high + start) for bounds in taken for low, high in bounds) != here
        ):
            found += [_one_among_zeros(world, operand, dim, start, gradients[output]) for output in outputs]
            continue
        size = world.terms.shape[whole(operand.term)][dim]
        term = whole(first.term)
        if (start, stop) != (0, size):
            within = all(start <= low and high <= stop for low, high in ways[dim]) and world.terms.arithmetic
            padded = all_of(world.terms, term, dim, start, size) if within else None
            padded = among_zeros(world.terms, term, dim, start, size) if padded is None else padded
            if padded is None:
                raise Mismatch("undecided-gradient", "has a gradient that has no form that is known", refutes=False)
            term = padded
        box = tuple((0, length(way)) for way in ways)
        one = values.out_of_pieces(first)
        one = one if term == whole(first.term) else values.through(one, term, 0, box, 1, frozenset())
        found.append(values.with_pieces(one, ways))
    shape = world.terms.shape[world.terms.whole(operand.term)]
    if any(world.terms.shape[world.terms.whole(value.term)] != shape for value in found):
        raise Mismatch("undecided-gradient", "has gradients of some of the parts of what was stacked", refutes=False)
    total = values.gradient_sum(operand.term, found)
    if total is None:
        raise Mismatch("mismatched-shards", "adds gradients of different slices", refutes=False)
    return total


def _with_unit(world: World, value: Value, dim: int) -> Value:
    """Return a value with one more dimension, which is one long. Raises Mismatch where it has no form."""
    is_whole = world.terms.whole(value.term) == value.term
    term = layouts.with_unit(world.terms, value.term, dim) if is_whole else None
    if term is None:
        raise Mismatch("undecided-gradient", "has gradients that have no form that is known", refutes=False)
    box = (*value.box[:dim], (0, 1), *value.box[dim:])
    return world.values.through(value, term, 0, box, 1, frozenset())


def _one_among_zeros(world: World, operand: Value, dim: int, start: int, gradient: Value) -> Value:
    """Return the gradient of one slice of the operand, as what the tensor holds of it among zeros."""
    terms, whole, ways = world.terms, world.terms.whole, world.values.pieces_of(operand)
    held = world.values.pieces_of(gradient)[dim]
    part = some_of(terms, whole(gradient.term), dim, *held[0]) if len(held) == 1 and gradient.fold is None else None
    size = terms.shape[whole(operand.term)][dim]
    padded = None if part is None else among_zeros(terms, part, dim, start + held[0][0], size)
    if padded is None:
        text = "has gradients of some of the slices of one value only, or of slices of different ones"
        raise Mismatch("undecided-gradient", text, refutes=False)
    everything = among_zeros(terms, whole(gradient.term), dim, start, size)
    if everything is not None:
        stop = start + terms.shape[whole(gradient.term)][dim]
        terms.ranges[padded] = (everything, dim, (start + held[0][0], start + held[0][1]), (start, stop))
    box = tuple((0, length(way)) for way in ways)
    plain = world.values.out_of_pieces(gradient)
    return world.values.with_pieces(world.values.through(plain, padded, 0, box, 1, frozenset()), ways)
