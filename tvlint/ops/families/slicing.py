"""Operators that take elements out of tensors: slices, splits, indices.

The dimension that is cut must be whole: what a rank would cut from its part is not what the reference cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from tvlint.ir.operators import Literal, Value
from tvlint.ops.field import Array, Field
from tvlint.ops.named_arrays import align, spread
from tvlint.ops.spec import (
    ONE,
    PREVIOUS,
    Bound,
    Call,
    MisfitError,
    OpSpec,
    Shape,
    Steps,
    Trait,
    UnsupportedError,
    having,
    stars,
)
from tvlint.ops.spelling import in_torch
from tvlint.plurals import counted

_FIRST = (frozenset({0}),)


def dimension(call: Call, name: str, rank: int, default: int | None = None) -> int:
    """Attribute `name` as a dimension of a tensor of `rank` dimensions; raises UnsupportedError where it is none."""
    dim = call.attributes.get(name, default)
    said = f"`{call.op}` along dim {dim} of a tensor of {counted(rank, 'dimension')}"
    if not isinstance(dim, int) or isinstance(dim, bool) or not rank:
        raise UnsupportedError(said)
    if not -rank <= dim < rank:
        raise MisfitError(said, f"`{name}` has to be from {-rank} to {rank - 1}")
    return dim % rank


def whole_number(call: Call, name: str, value: Value) -> int:
    """`value` of attribute `name`; raises UnsupportedError where it is no whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UnsupportedError(f"`{call.op}` with `{name}` {value}")
    return value


def _index(call: Call) -> Bound:
    """`x[...]` with whole slices, slices, places and new dimensions of size 1."""
    call.reject_unknown()
    for _, (_, dim, _) in _at_places(call):
        (places,) = (operand for operand in call.inputs[1:] if not isinstance(operand, Literal))
        return _index_at(Call(call.op, (call.inputs[0], Literal(dim) if isinstance(dim, int) else dim, places), {}))
    entries = [operand.value for operand in call.inputs[1:] if isinstance(operand, Literal)]
    if len(entries) != len(call.inputs) - 1 or not entries:
        raise UnsupportedError(f"`{call.op}` with {counted(len(call.inputs), 'operand')}")
    if len(entries) == 1 and isinstance(entries[0], tuple) and entries[0][:1] != ("slice",):
        entries = list(entries[0])
    return _sliced(call, entries)


def _sliced(call: Call, entries: Sequence[Value]) -> Bound:
    shape = call.shape(0)
    names = stars(len(shape))
    used = sum(1 for entry in entries if entry is not None and entry != "...")
    if used > len(shape):
        raise MisfitError(f"`{call.op}` with {used} indices of shape {shape}", f"it has {counted(len(shape), 'dimension')}")
    if list(entries).count("...") > 1:
        raise UnsupportedError(f"`{call.op}` with {used} indices of shape {shape}")
    filled: list[Value] = []
    for entry in entries if "..." in entries else (*entries, "..."):
        filled.extend([("slice", None, None, None)] * (len(shape) - used) if entry == "..." else [entry])
    dim, taken, result, sizes = 0, list[Value](), list[str](), dict[str, int]()
    for entry in filled:
        if entry is None:
            result.append(ONE)
            continue
        found = _one_index(call, entry, shape[dim])
        taken.append(found)
        if found is None:
            result.append(names[dim])
        elif isinstance(found, tuple):
            part = f"part{dim}"
            result.append(part)
            sizes[part] = len(range(*(n for n in found if isinstance(n, int))))
        dim += 1
    whole = frozenset(name for name, entry in zip(names, taken, strict=True) if entry is not None)
    return Bound((names,), (tuple(result),), whole=whole | set(sizes), linear=_FIRST, attributes=tuple(taken), sizes=sizes)


def _one_index(call: Call, entry: Value, size: int) -> Value:
    """None for everything, a place, or start, stop and step, all counted from the start."""
    if isinstance(entry, int) and not isinstance(entry, bool):
        if not -size <= entry < size:
            raise MisfitError(f"`{call.op}` takes index {entry} of {size}", f"the index has to be from {-size} to {size - 1}")
        return entry % size
    if not isinstance(entry, tuple) or entry[:1] != ("slice",) or not 2 <= len(entry) <= 4:
        raise UnsupportedError(f"`{call.op}` with the index {entry}")
    bounds = [None if value is None else whole_number(call, "slice", value) for value in entry[1:]]
    start, stop, step = (None, bounds[0], None) if len(bounds) == 1 else (*bounds, None)[:3]
    if step is not None and step < 1:
        raise UnsupportedError(f"`{call.op}` with the step {step}")
    if start in (None, 0) and stop is None and step in (None, 1):
        return None
    return slice(start, stop, step).indices(size)


def looked_up_at(bound: Bound) -> int:
    """Return which of two operands has the indices at which the operator looks up the other one, and does nothing else; -1
    where neither has.
    """
    if len(bound.operands) != 2 or len(bound.indices) != 1 or bound.ranges.keys() - set(bound.indices.values()):
        return -1
    ((at, name),) = bound.indices.items()
    table, index = bound.operands[1 - at], bound.operands[at]
    looked_up = tuple(index[0] if each == name else each for each in table) if len(index) == 1 and name in table else ()
    alone = bound.linear == (frozenset({1 - at}),) and not any(value is not None for value in bound.attributes)
    return at if alone and bound.outputs == (looked_up,) and bound.zero_gradient == frozenset({at}) else -1


def _take(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    index: list[Any] = [slice(None) if e is None else slice(*e) if isinstance(e, tuple) else e for e in bound.attributes]
    kept = [name for name in bound.outputs[0] if name != ONE]
    return (spread(operands[0][tuple(index)], kept, bound.outputs[0]),)


def _taken_at(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    return _take(bound, operands, field) if len(operands) == 1 else _choose(bound, operands, field)


def _narrow(call: Call) -> Bound:
    call = call.with_arguments("dim", "start", "length")
    call.reject_unknown("dim", "start", "length")
    call.expect(1)
    dim = dimension(call, "dim", len(call.shape(0)))
    start, length = (whole_number(call, name, call.attributes.get(name)) for name in ("start", "length"))
    size = call.shape(0)[dim]
    if start < 0:
        start += size
    if not 0 <= start <= start + length <= size:
        raise MisfitError(f"`{call.op}` of {length} indices from {start} of {size}", f"there are {size} indices along `dim`")
    return _sliced(call, [*_everything(dim), ("slice", start, start + length, None)])


def _select(call: Call) -> Bound:
    call = call.with_arguments("dim", "index")
    call.reject_unknown("dim", "index")
    call.expect(1)
    return _sliced(call, [*_everything(dimension(call, "dim", len(call.shape(0)))), call.attributes.get("index")])


def _slice(call: Call) -> Bound:
    call = call.with_arguments("dim", "start", "end", "step")
    call.reject_unknown("dim", "start", "end", "step")
    call.expect(1)
    dim = dimension(call, "dim", len(call.shape(0)), 0)
    return _sliced(call, [*_everything(dim), ("slice", *(call.attributes.get(name) for name in ("start", "end", "step")))])


def _everything(count: int) -> list[Value]:
    return [("slice", None, None, None)] * count


def _split(call: Call) -> Bound:
    """`split` into parts of a size or of sizes, `chunk` into a number of parts, `tensor_split` at places or into a number."""
    kind = call.op.rsplit(".", 1)[-1]
    chunks, places = kind == "chunk", kind == "tensor_split"
    argument = "split_size" if "split_size" in call.attributes else "split_size_or_sections"
    argument = "chunks" if chunks else "indices" if "indices" in call.attributes else "sections" if places else argument
    call = call.with_arguments(argument, "dim")
    call.reject_unknown(argument, "dim")
    call.expect(1)
    shape = call.shape(0)
    names = stars(len(shape))
    dim = dimension(call, "dim", len(shape), 0)
    given = call.attributes.get(argument)
    if isinstance(given, tuple):
        sizes = [whole_number(call, argument, size) for size in given]
        sizes = [high - low for low, high in pairwise((0, *sizes, shape[dim]))] if places else sizes
    elif places:
        count = whole_number(call, argument, given)
        if not 0 < count <= 4096:
            raise UnsupportedError(f"`{call.op}` of {shape[dim]} indices with `{argument}` {given}")
        sizes = [(shape[dim] + count - 1 - part) // count for part in range(count)]
    else:
        step = whole_number(call, argument, given)
        step = -(-shape[dim] // step) if chunks and step > 0 else step
        if step < 1 or shape[dim] // step > 4096:
            raise UnsupportedError(f"`{call.op}` of {shape[dim]} indices with `{argument}` {given}")
        sizes = [min(step, shape[dim] - low) for low in range(0, shape[dim], step)]
    if min(sizes, default=-1) < 0:
        raise UnsupportedError(f"`{call.op}` of {shape[dim]} indices into {tuple(sizes)}")
    if sum(sizes) != shape[dim]:
        said = f"`{call.op}` of {shape[dim]} indices into {tuple(sizes)}"
        raise MisfitError(said, f"the parts have to be {shape[dim]} long together, and are {sum(sizes)}")
    parts = [f"part{i}" for i in range(len(sizes))]
    return Bound(
        (names,),
        tuple((*names[:dim], part, *names[dim + 1 :]) for part in parts),
        whole=frozenset({names[dim], *parts}),
        linear=_FIRST,
        attributes=tuple(sizes),
        sizes=dict(zip(parts, sizes, strict=True)),
    )


def _cut(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    axis = next(i for i, name in enumerate(bound.operands[0]) if name in bound.whole)
    places = np.cumsum([size for size in bound.attributes if isinstance(size, int)])[:-1]
    return tuple(np.split(operands[0], places, axis=axis))


def ranges_taken(bound: Bound, shape: Shape) -> tuple[tuple[tuple[int, int], ...], ...] | None:
    """For every result of a slice or split, the indices that it holds of each dimension of its operand of shape `shape`.

    None where a result is not a part of the operand with as many dimensions.
    """
    (names,), everything = bound.operands, [(0, size) for size in shape]
    if any(len(result) != len(names) or ONE in result for result in bound.outputs):
        return None
    lengths = [size for size in bound.attributes if isinstance(size, int)]
    if len(lengths) == len(bound.attributes) == len(bound.outputs):
        dim = next(i for i, name in enumerate(names) if name in bound.whole)
        starts = [sum(lengths[:i]) for i in range(len(lengths))]
        found = [(low, low + size) for low, size in zip(starts, lengths, strict=True) if size]
        return tuple((*everything[:dim], part, *everything[dim + 1 :]) for part in found)
    for dim, entry in enumerate(bound.attributes):
        if entry is None:
            continue
        if not isinstance(entry, tuple) or len(entry) != 3 or entry[2] != 1:
            return None
        start, stop, _ = entry
        if not isinstance(start, int) or not isinstance(stop, int) or not start < stop:
            return None
        everything[dim] = (start, stop)
    return (tuple(everything),)


def _index_select(call: Call) -> Bound:
    """Rows of operand 0 along `dim`; `index` is a tensor of whole numbers."""
    dim, operands = _positional_dim(call)
    names = stars(len(operands.shape(0)))
    if len(operands.shape(1)) != 1:
        raise UnsupportedError(f"`{call.op}` with indices of shape {operands.shape(1)}")
    return _chosen((*names[:dim], "source", *names[dim + 1 :]), ("place",), (*names[:dim], "place", *names[dim + 1 :]))


def _index_at(call: Call) -> Bound:
    """Places of operand 0 along the dimension that stands between the tensors; operand 1 has the places, in any shape."""
    dim, operands = _positional_dim(call)
    names, places = stars(len(operands.shape(0))), tuple(f"at{at}" for at in range(len(operands.shape(1))))
    return _chosen((*names[:dim], "source", *names[dim + 1 :]), places, (*names[:dim], *places, *names[dim + 1 :]))


def _at_places(call: Call) -> Steps:
    """`x[:, places]`, with whole dimensions beside one tensor of places."""
    entries = call.inputs[1:]
    given = [at for at, entry in enumerate(entries) if not isinstance(entry, Literal)]
    beside = [entry for entry in entries if entry not in (Literal(("slice", None, None, None)), Literal("..."))]
    if len(given) != 1 or len(beside) != 1 or Literal("...") in entries[: given[0]]:
        return ()
    return (("index-at", (0, Literal(given[0]), 1)),)


def _gather(call: Call) -> Bound:
    """Elements of operand 0 along `dim`, for every element of `index`, whose other dimensions are those of operand 0."""
    dim, operands = _positional_dim(call)
    names, shape, index = stars(len(operands.shape(0))), operands.shape(0), operands.shape(1)
    if len(shape) != len(index) or any(a != b for i, (a, b) in enumerate(zip(shape, index, strict=True)) if i != dim):
        raise UnsupportedError(f"`{call.op}` of shape {shape} with indices of shape {index}")
    place = (*names[:dim], "place", *names[dim + 1 :])
    return _chosen((*names[:dim], "source", *names[dim + 1 :]), place, place)


def _positional_dim(call: Call) -> tuple[int, Call]:
    """`dim` and the call with its two tensors; `dim` may stand between them."""
    inputs, attributes = call.inputs, dict(call.attributes)
    if len(inputs) == 3 and isinstance(inputs[1], Literal) and "dim" not in attributes:
        attributes["dim"] = inputs[1].value
        inputs = (inputs[0], inputs[2])
    found = Call(call.op, inputs, attributes, call.outputs)
    found.reject_unknown("dim", "sparse_grad")
    found.expect(2)
    return dimension(found, "dim", len(found.shape(0))), found


def _chosen(source: tuple[str, ...], index: tuple[str, ...], result: tuple[str, ...]) -> Bound:
    return Bound(
        (source, index),
        (result,),
        whole=frozenset({"source"}),
        linear=_FIRST,
        zero_gradient=frozenset({1}),
        indices={1: "source"},
    )


def _one_hot(call: Call) -> Bound:
    """One where the last dimension, `num_classes` long, has the index, and zero elsewhere."""
    call = call.with_arguments("num_classes")
    call.reject_unknown("num_classes")
    call.expect(1)
    count, names = whole_number(call, "num_classes", call.attributes.get("num_classes")), stars(len(call.shape(0)))
    if count < 1:
        raise UnsupportedError(f"`{call.op}` without `num_classes`")
    return Bound(
        (names,),
        ((*names, "class"),),
        whole=frozenset({"class"}),
        attributes=(count,),
        zero_gradient=frozenset({0}),
        indices={0: "class"},
        sizes={"class": count},
    )


def _marked(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    (index,), one, zero = operands, field.number(1), field.number(0)
    return (np.stack([field.where(field.equal(index, number), one, zero) for number in range(bound.sizes["class"])], axis=-1),)


def _scatter(call: Call) -> Bound:
    """Operand 0 with `src` in the places of `index` along `dim`; the other dimensions of all three are the same.

    One number may stand in the place of `src`: several same indices are then no matter.
    """
    inputs, attributes = call.inputs, dict(call.attributes)
    if len(inputs) > 2 and isinstance(inputs[1], Literal) and "dim" not in attributes:
        attributes["dim"] = inputs[1].value
        inputs = (inputs[0], *inputs[2:])
    call = Call(call.op, inputs, attributes, call.outputs).with_arguments("value")
    call.reject_unknown("dim", "value")
    number = call.attributes.get("value")
    if number is not None and (isinstance(number, bool) or not isinstance(number, int | float)):
        raise UnsupportedError(f"`{call.op}` of the constant {number}")
    call.expect(3 if number is None else 2)
    shape, index, given = call.shape(0), call.shape(1), call.shape(1 if number is not None else 2)
    dim, names = dimension(call, "dim", len(shape)), stars(len(shape))
    others = [part[:dim] + part[dim + 1 :] for part in (shape, index, given)]
    if index != given or others[0] != others[1] or len(index) != len(shape):
        raise UnsupportedError(f"`{call.op}` of shape {shape} with indices of shape {index} and values of shape {given}")
    source, place = ((*names[:dim], part, *names[dim + 1 :]) for part in ("source", "place"))
    if number is not None:
        bound = _chosen(source, place, source)
        linear = () if number else bound.linear
        return replace(bound, whole=frozenset({"source", "place"}), linear=linear, attributes=("scatter", number))
    return Bound(
        (source, place, place),
        (source,),
        whole=frozenset({"source", "place"}),
        linear=(frozenset({0, 2}),),
        attributes=("scatter",),
        zero_gradient=frozenset({1}),
        indices={1: "source"},
        assumption="no two indices of a `scatter` are the same place: torch leaves open which of several values is kept there",
    )


def _put(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    axis = bound.operands[0].index("source")
    total, index, *rest = (np.moveaxis(operand, axis, 0) for operand in operands)
    rows = list(total)
    number = bound.attributes[-1]
    given = [field.number(number)] * len(index) if isinstance(number, int | float) else rest[0]
    for place, value in zip(index, given, strict=True):
        rows = [field.where(field.equal(place, at), value, row) for at, row in enumerate(rows)]
    return (np.moveaxis(np.stack(rows), 0, axis),)


def _index_sum(call: Call) -> Bound:
    """Along `dim`, for each of `size` places, the sum of the elements of operand 1 whose index in operand 0 is that place.

    The indices are one for every position along `dim`, or one for every element.
    """
    call = call.with_arguments("dim", "size")
    call.reject_unknown("dim", "size")
    call.expect(2)
    index, given = call.shape(0), call.shape(1)
    dim, names = dimension(call, "dim", len(given)), stars(len(given))
    if index not in (given, given[dim : dim + 1]):
        raise UnsupportedError(f"`{call.op}` with indices of shape {index} and values of shape {given}")
    place, source = ((*names[:dim], part, *names[dim + 1 :]) for part in ("place", "source"))
    return Bound(
        (place if index == given and len(given) > 1 else ("place",), place),
        (source,),
        reduced=frozenset({"place"}),
        whole=frozenset({"source"}),
        linear=(frozenset({1}),),
        zero_gradient=frozenset({0}),
        indices={0: "source"},
        sizes={"source": whole_number(call, "size", call.attributes.get("size"))},
    )


def _add_at(call: Call) -> Bound:
    """Operand 0 and, along `dim`, the elements of `source` added at the places that `index` has for them."""
    dim, alpha, call = _added_at(call)
    shape, index, given = (call.shape(i) for i in range(3))
    wanted = 1 if call.op.rsplit(".", 1)[-1].startswith("index") else len(given)
    if index and len(index) != wanted:
        raise MisfitError(f"`{call.op}` with indices of shape {index}", f"they have to have {counted(wanted, 'dimension')}")
    inner = _index_sum(Call(call.op, (index, given), {"dim": dim, "size": shape[dim]}))
    if len(shape) != len(given) or any(a != b for i, (a, b) in enumerate(zip(shape, given, strict=True)) if i != dim):
        raise UnsupportedError(f"`{call.op}` of shape {shape} with values of shape {given}")
    return Bound(
        (inner.outputs[0], *inner.operands),
        inner.outputs,
        whole=frozenset({"source", "place"}),
        linear=(frozenset({0, 2}),),
        attributes=("add", alpha),
        zero_gradient=frozenset({1}),
        indices={1: "source"},
    )


def _extreme_at(call: Call) -> Bound:
    """Operand 0 and, along `dim`, the greatest or least of its elements and of those of `source` at the places in `index`."""
    attributes, last = dict(call.attributes), call.inputs[4:]
    given = last[0].value if len(last) == 1 and isinstance(last[0], Literal) else ""
    kind = attributes.pop("reduce", given)
    if kind not in ("amax", "amin") or attributes.pop("include_self", True) is not True or "alpha" in attributes:
        raise UnsupportedError(f"`{call.op}` that reduces with {kind}, or leaves its first operand out")
    call = Call(call.op, call.inputs[:4], attributes, call.outputs)
    if 0 in _added_at(call)[2].shape(2):
        raise UnsupportedError(f"`{call.op}` of no elements")
    bound = _add_at(call)
    return replace(bound, linear=(), attributes=(kind,), splits={"place": "max"} if kind == "amax" else {})


def _added_at(call: Call) -> tuple[int, Value, Call]:
    """`dim`, which may stand after the first operand, what the added elements are multiplied with, and the three tensors."""
    inputs, attributes = call.inputs, dict(call.attributes)
    if len(inputs) == 4 and isinstance(inputs[1], Literal) and "dim" not in attributes:
        attributes["dim"] = inputs[1].value
        inputs = (inputs[0], *inputs[2:])
    call = Call(call.op, inputs, attributes, call.outputs)
    call.reject_unknown("dim", "alpha")
    call.expect(3)
    alpha = attributes.get("alpha", 1)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float):
        raise UnsupportedError(f"`{call.op}` with `alpha` {alpha}")
    return dimension(call, "dim", len(call.shape(0))), alpha, call


def _in_two_steps(call: Call) -> Steps:
    dim, alpha, call = _added_at(call)
    steps: Steps = (("index-sum", (1, 2, Literal(dim), Literal(call.shape(0)[dim]))),)
    scaled: Steps = (("mul", (PREVIOUS, Literal(alpha))),) if alpha != 1 else ()
    return (*steps, *scaled, ("add", (0, PREVIOUS)))


def _sum_at(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    axis = bound.operands[1].index("place")
    index = align(operands[0], bound.operands[0], bound.operands[1])
    rows = [field.where(field.equal(index, row), operands[1], field.number(0)) for row in range(bound.sizes["source"])]
    return (np.stack([row.sum(axis=axis) for row in rows], axis=axis),)


def _sum_added(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    size = operands[0].shape[bound.operands[0].index("source")]
    (total,) = _sum_at(Bound(bound.operands[1:], bound.outputs, sizes={"source": size}), operands[1:], field)
    alpha = bound.attributes[1]
    return (operands[0] + (total if alpha == 1 or not isinstance(alpha, int | float) else total * field.number(alpha)),)


def _compared(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    axis = bound.operands[0].index("source")
    index = align(operands[1], bound.operands[1], bound.operands[2])
    rows = [operands[0].take(row, axis=axis) for row in range(operands[0].shape[axis])]
    for row in range(len(rows)):
        for place in range(operands[2].shape[axis]):
            one, other = rows[row], operands[2].take(place, axis=axis)
            less = field.less(one, other) if bound.attributes[0] == "amax" else field.less(other, one)
            rows[row] = field.where(field.equal(index.take(place, axis=axis), row), field.where(less, other, one), one)
    return (np.stack(rows, axis=axis),)


def _choose(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    source, result = bound.operands[0], bound.outputs[0]
    axis = source.index("source") if "source" in source else next(i for i, n in enumerate(source) if n in bound.whole)
    index = align(operands[1], bound.operands[1], result)
    total: Any = field.number(0)
    for row in range(operands[0].shape[axis]):
        array = align(operands[0].take(row, axis=axis), (*source[:axis], *source[axis + 1 :]), result)
        total = field.where(field.equal(index, row), array, total)
    return (total,)


SPECS = (
    *having(
        (Trait.RANGES, Trait.POSITIONAL),
        OpSpec(
            "index",
            ("operator.getitem", "nnscaler.runtime.function.fullslice"),
            _index,
            steps=_at_places,
            evaluate=_taken_at,
        ),
        OpSpec("narrow", ("torch.ops.aten.slice", "slice"), _slice, evaluate=_take),
        OpSpec("narrow", in_torch("narrow"), _narrow, evaluate=_take),
        *having(
            (Trait.APART,),
            OpSpec("split", (*in_torch("split", "chunk", "tensor_split"), "torch.functional.split"), _split, evaluate=_cut),
        ),
    ),
    *having((Trait.SELECTION, Trait.POSITIONAL), OpSpec("select", in_torch("select"), _select, evaluate=_take)),
    *having(
        (Trait.MOVES,),
        OpSpec("index-select", in_torch("index_select"), _index_select, evaluate=_choose),
        OpSpec("index-at", (), _index_at, evaluate=_choose),
        OpSpec("gather", in_torch("gather"), _gather, evaluate=_choose, traits=frozenset({Trait.PICK})),
    ),
    *having((Trait.POSITIONAL, Trait.WIDE), OpSpec("one-hot", ("torch.nn.functional.one_hot",), _one_hot, evaluate=_marked)),
    OpSpec("index-sum", (), _index_sum, evaluate=_sum_at),
    *having(
        (Trait.ONE_TYPE,),
        OpSpec("scatter", in_torch("scatter"), _scatter, evaluate=_put),
        OpSpec("index-add", in_torch("index_add", "scatter_add"), _add_at, steps=_in_two_steps, evaluate=_sum_added),
        OpSpec("index-reduce", in_torch("index_reduce", "scatter_reduce"), _extreme_at, evaluate=_compared),
    ),
)
