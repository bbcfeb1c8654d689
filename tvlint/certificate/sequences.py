"""The results of annotated operators: of one, and of uses that are told as several in sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tvlint.certificate.attention import ATTENTION
from tvlint.certificate.form import Relation
from tvlint.certificate.operators import World, made
from tvlint.certificate.tables import VIEW, Rejected
from tvlint.certificate.uses import Kept, forward_use
from tvlint.certificate.views import view
from tvlint.ir.operators import Value
from tvlint.ops.spec import PREVIOUS, Bound, Call, Family, OpSpec, Shape
from tvlint.ops.table import spec_of

Attributes: TypeAlias = Mapping[str, Value]

REPEAT = "repeat-interleave"


def once(world: World, name: str, bound: Bound, values: tuple[Relation, ...], call: Call) -> Kept:
    """One annotated operator."""
    if len(bound.outputs) != max(1, len(call.outputs)) or len(bound.operands) != len(values):
        raise Rejected(f"`{call.op}` has other operands or results than its annotation")
    outputs = []
    for i, names in enumerate(bound.outputs):
        declared = dict(zip(names, call.outputs[i] if i < len(call.outputs) else (), strict=False))
        outputs.append(made(world, forward_use(name, bound, i, values, {**declared, **bound.sizes})))
    return Kept(name, bound, Family.INDEXED, values, tuple(outputs))


def by_name(world: World, op: str, values: tuple[Relation, ...], given: Attributes, shapes: tuple[Shape, ...] = ()) -> Kept:
    """One operator of the table on these operands."""
    call = Call(op, tuple(map(world.whole_shape, values)), given, shapes)
    return once(world, op, _bound(call), values, call)


def _bound(call: Call) -> Bound:
    spec = spec_of(call.op)
    if spec is None:
        raise AssertionError(call.op)
    return spec.bind(call)


def repeated(world: World, value: Relation, bound: Bound, copies: tuple[int, int] | None = None) -> Kept:
    """Every element several times in a row: a new dimension, widened, and viewed as one with the dimension before it.

    So a part of the elements gives a part of the result, and so do the `copies` low:high of one element.
    """
    tables, count = world.tables, len(value.box)
    (repeats,), dim = bound.attributes, next(i for i, name in enumerate(bound.operands[0]) if name in bound.whole)
    thin = by_name(world, "unsqueeze", (value,), {"dim": dim + 1})
    size = (*[-1] * (dim + 1), repeats, *[-1] * (count - dim - 1))
    wide = by_name(world, "expand", thin.outputs, {"size": size})
    own = wide.outputs[0]
    if copies is not None:
        own = tables.relation(own.term, (*own.box[: dim + 1], copies, *own.box[dim + 2 :]), own.coefficient, own.parts)
        wide = Kept(wide.op, wide.bound, wide.family, wide.inputs, (own,))
    term, (low, high), (first, last) = tables.terms[own.term], own.box[dim], own.box[dim + 1]
    times = term.shape[dim + 1]
    content = VIEW, (own.term,), (*term.shape[:dim], term.shape[dim] * times, *term.shape[dim + 2 :])
    number = tables.term(*content, term.slot - (term.slot > dim))
    box = (*own.box[:dim], (low * times + first, (high - 1) * times + last), *own.box[dim + 2 :])
    claim = tables.relation(number, box)
    joined = Kept("view", bound, Family.RESHAPE, (own,), (view(world, own, world.local_shape(claim), claim),))
    steps = ((thin, (0,)), (wide, (PREVIOUS,)), (joined, (PREVIOUS,)))
    return Kept(REPEAT, bound, Family.INDEXED, (value,), joined.outputs, steps)


def widened(
    world: World, spec: OpSpec, call: Call, values: tuple[Relation, ...]
) -> tuple[Call, tuple[Relation, ...], tuple[Kept, ...]]:
    """A use of an operator as it is; of attention whose heads of queries share keys and values, that on one of each a head.

    A rank that holds one head of keys takes it as often as it has heads of queries, which must be some of those that share it.
    """
    shares = spec.name == ATTENTION and call.attributes.get("enable_gqa") is True
    if not shares or call.shape(0)[-3:-2] == call.shape(1)[-3:-2]:
        return call, values, ()
    query, key, value = (call.shape(i) for i in range(3))
    dim = len(query) - 3
    if dim < 0 or not len(query) == len(key) == len(value) or key[dim] != value[dim] or query[dim] % key[dim]:
        raise Rejected(f"`{call.op}` of heads of shapes {query}, {key} and {value}")
    times, (low, high), (first, last) = query[dim] // key[dim], values[0].box[dim], values[1].box[dim]
    some = last - first == 1 and first * times <= low < high <= last * times
    if any(world.tables.terms[own.term].slot == dim for own in values[:3]):
        raise Rejected(f"`{call.op}` has its batch where its heads are")
    copies = (low - first * times, high - first * times) if some else None
    wide = tuple(
        repeated(world, own, _bound(Call("repeat_interleave", (shape,), {"repeats": times, "dim": dim})), copies)
        for own, shape in zip(values[1:3], (key, value), strict=True)
    )
    inner = (values[0], *(own.outputs[0] for own in wide), *values[3:])
    attributes = {name: own for name, own in call.attributes.items() if name != "enable_gqa"}
    shapes = (call.inputs[0], *(world.whole_shape(own) for own in inner[1:3]), *call.inputs[3:])
    return Call(call.op, shapes, attributes, call.outputs), inner, wide
