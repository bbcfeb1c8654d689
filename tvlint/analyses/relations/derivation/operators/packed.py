"""Tensors that a plan takes apart or joins along a dimension of which a rank holds some pieces, where no reference says how.

Each part of what is packed (query, key and value, or gate and up) may be split on its own. What a rank cuts is then a piece of
the same part of the whole value, and what it joins are pieces of the whole values side by side. What holds all indices of a
dimension in another order is cut into pieces of itself, and may be joined again in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import accumulate, pairwise

from tvlint.analyses.relations.derivation.operators.slices import moved_into, of_one, taken_by
from tvlint.analyses.relations.derivation.state import Machine, Moved, Saved
from tvlint.analyses.relations.transfer.context import Mismatch, World, of_one_plan
from tvlint.analyses.relations.transfer.index_maps import cut, is_all_of, joined, length
from tvlint.analyses.relations.transfer.memo import Form
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import Literal
from tvlint.ir.operators import Value as Constant
from tvlint.ops.spec import Family, OpSpec

Evaluate = Callable[[Form, tuple[Value, ...]], Saved]


def taken_apart(machine: Machine, spec: OpSpec, form: Form, value: Value, evaluate: Evaluate) -> Saved | None:
    """Return the parts of a tensor of which the rank holds some pieces; None where the ordinary meaning holds.

    Raises Mismatch where a part is not of one part of the whole value.
    """
    world, found = machine.world, taken_by(machine, spec, form, value)
    if found is None:
        return None
    bound, taken = found
    shape, ways = world.local_shape(value), world.values.pieces_of(value)
    dims = {dim for ranges in taken for dim, each_range in enumerate(ranges) if each_range != (0, shape[dim])}
    if len(dims) != 1:
        return None
    (dim,), whole = dims, world.terms.whole(value.term)
    size = world.terms.shape[whole][dim]
    ratio, rest = divmod(size, shape[dim])
    if ways[dim] == ((0, size),) or rest:
        return None
    places = [ranges[dim] for ranges in taken]
    parts = [(low * ratio, high * ratio) for low, high in places]
    held = [cut(ways[dim], *place) for place in places]
    pieces = [world.values.with_pieces(value, (*ways[:dim], piece, *ways[dim + 1 :])) for piece in held]
    if all(low <= one and other <= high for piece, (low, high) in zip(held, parts, strict=True) for one, other in piece):
        on_whole = evaluate(_of_whole(form, ratio), (_all_of(world, whole),))
        outputs = [
            moved_into(world, piece, made.term, dim, low)
            for piece, made, (low, _) in zip(pieces, on_whole.outputs, parts, strict=True)
            if made is not None
        ]
        return Saved(spec.name, bound, Family.INDEXED, (value,), tuple(outputs), packed=on_whole)
    if dim == len(shape) - 1 and not is_all_of(ways[dim], size):
        lies = ", ".join(f"{low}:{high}" for low, high in ways[dim])
        text = f"takes indices {lies} of {size} apart, which are not as many of each of the {len(taken)} parts"
        unless = "the two parts of each rank are stored in a row" if len(taken) == 2 else ""
        raise of_one_plan("packed-split-across-shards", text, operand=0, unless=unless)
    moved = Moved(dim, False, tuple(places), ((0, size),) * len(places))
    return Saved(spec.name, bound, Family.INDEXED, (value,), tuple(pieces), moved=moved)


def slice_of_pieces(machine: Machine, spec: OpSpec, form: Form, value: Value) -> Saved | None:
    """Return a slice of rows of a computed or given tensor of which the rank holds some pieces: those in the slice.

    None for other slices, and along other dimensions, which may hold parts that are packed on each rank.
    """
    saved = edge_of_shard(machine, spec, form, value)
    return saved if saved is not None and saved.moved is not None and saved.moved.dim == 0 and len(value.box) > 1 else None


def edge_of_shard(machine: Machine, spec: OpSpec, form: Form, value: Value) -> Saved | None:
    """Return a slice along one dimension of a computed or given tensor of which the rank holds some pieces: those in it.

    None for other slices, of weights too.
    """
    terms, found = machine.world.terms, taken_by(machine, spec, form, value)
    if found is None or len(found[1]) != 1 or terms.keys[terms.whole(value.term)][0] == "weight":
        return None
    (ranges,), shape, ways = found[1], machine.world.local_shape(value), machine.world.values.pieces_of(value)
    dims = [dim for dim, each_range in enumerate(ranges) if each_range != (0, shape[dim])]
    if len(dims) != 1:
        return None
    (dim,) = dims
    size = terms.shape[terms.whole(value.term)][dim]
    if ways[dim] == ((0, size),) or value.fold is not None:
        return None
    made = machine.world.values.with_pieces(value, (*ways[:dim], cut(ways[dim], *ranges[dim]), *ways[dim + 1 :]))
    return Saved(spec.name, found[0], Family.INDEXED, (value,), (made,), moved=Moved(dim, False, (ranges[dim],), ((0, size),)))


def joined_together(machine: Machine, spec: OpSpec, form: Form, values: tuple[Value, ...], evaluate: Evaluate) -> Saved | None:
    """Return what pieces of values are side by side, each with its own pieces; None where the ordinary meaning holds."""
    world = machine.world
    bound = spec.bound(replace(form.call(map(world.local_shape, values)), outputs=()))
    if bound is None:
        return None
    dim = next((dim for dim, names in enumerate(zip(*bound.operands, strict=False)) if len(set(names)) > 1), None)
    if dim is None or len({len(value.box) for value in values}) > 1:
        return None
    wholes = [world.terms.whole(value.term) for value in values]
    ways = [world.values.pieces_of(value) for value in values]
    sizes = [world.terms.shape[term][dim] for term in wholes]
    if all(way[dim] == ((0, size),) for way, size in zip(ways, sizes, strict=True)):
        return None
    if len({(*way[:dim], *way[dim + 1 :]) for way in ways}) > 1 or any(not value.clean for value in values):
        return None
    one = of_one(world, values, ways, dim, again=True)
    if one is not None:
        ends = [0, *accumulate(length(way[dim]) for way in ways)]
        moved = Moved(dim, True, tuple(pairwise(ends)), one[1])
        return Saved(spec.name, bound, Family.INDEXED, values, (one[0],), moved=moved)
    unknown = tuple(None for _ in form.outputs)
    on_whole = evaluate(replace(form, outputs=unknown), tuple(_all_of(world, term) for term in wholes))
    (made,) = on_whole.outputs
    if made is None:
        return None
    starts = accumulate(sizes, initial=0)
    pieces = joined((low + start, high + start) for way, start in zip(ways, starts, strict=False) for low, high in way[dim])
    result = world.values.with_pieces(made, (*ways[0][:dim], pieces, *ways[0][dim + 1 :]))
    return Saved(spec.name, on_whole.bound, Family.INDEXED, values, (result,), packed=on_whole)


def _all_of(world: World, term: int) -> Value:
    return world.values.clean(term, tuple((0, size) for size in world.terms.shape[term]))


def _of_whole(form: Form, ratio: int) -> Form:
    """Return what takes the whole value apart into as many times longer parts."""

    def longer(value: Constant) -> Constant:
        if isinstance(value, tuple | list):
            return tuple(size * ratio if isinstance(size, int) else size for size in value)
        return value * ratio if isinstance(value, int) and not isinstance(value, bool) else value

    if form.op.rsplit(".", 1)[-1] == "chunk":
        return replace(form, outputs=tuple(None for _ in form.outputs))
    place = next((at for at, operand in enumerate(form.operands) if operand is not None), -1)
    operands = tuple(
        Literal(longer(operand.value)) if operand is not None and at == place else operand
        for at, operand in enumerate(form.operands)
    )
    named = {name: longer(value) if name.startswith("split_size") else value for name, value in form.attributes.items()}
    return replace(form, operands=operands, attributes=named, outputs=tuple(None for _ in form.outputs))


def gradient_in_pieces(
    world: World,
    saved: Saved,
    position: int,
    gradients: Mapping[int, Value],
    on_whole: Callable[[dict[int, Value]], Value | str],
) -> Value | str:
    """Return the gradient of an operand of what was taken apart or joined, from those of the results on their own pieces."""
    values, given = world.values, saved.inputs[position]
    for place, gradient in gradients.items():
        made = saved.outputs[place]
        if made is None or given is None or not gradient.clean:
            raise Mismatch("undecided-gradient", "has parts of sums as gradients of its parts", refutes=False)
        if values.pieces_of(gradient) != values.pieces_of(made):
            raise Mismatch("mismatched-shards", "gets the gradient of another slice than its result", refutes=True)
    whole = on_whole({place: _all_of(world, world.terms.whole(gradient.term)) for place, gradient in gradients.items()})
    if isinstance(whole, str) or given is None:
        return whole if isinstance(whole, str) else "absent"
    return values.with_pieces(whole, values.pieces_of(given))
