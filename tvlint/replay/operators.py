"""One operator, and its gradient, on numbers, from its row of the operator table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from tvlint.ir.operators import NOT_UNDERSTOOD, Compute, Literal
from tvlint.ops.families.attention import shares_heads
from tvlint.ops.field import Array, Floats
from tvlint.ops.spec import ONE, Bound, Call, Family, OpSpec, Steps, Trait, UnsupportedError
from tvlint.ops.spelling import without_overload
from tvlint.ops.table import spec_of
from tvlint.replay.stand_ins import StandIns

_STEP = 1e-40
MOST_WORK = 1 << 31
"""A gradient that takes more multiplications than these is not computed."""

Shape = tuple[int, ...]


class NotReplayedError(Exception):
    """The operator table does not say what an operator computes, or it would take too long."""


def forward(
    compute: Compute, operands: Sequence[Array], results: Sequence[Shape | None], stand_ins: StandIns | None = None
) -> tuple[Array, ...]:
    """Return the results of a computation on its tensor operands, in the shapes that the plan declares for them, if it does.

    An operator that draws random numbers, or has none in the table, is run where `stand_ins` are given.
    """
    shapes = [shape for shape in results if shape is not None]
    whole = shapes if len(shapes) == len(results) else ()
    spec, call = _call(compute.op, compute.inputs, compute.attributes, operands, whole)
    apart, wide = _with_heads_apart(spec, call, operands)
    found = _evaluate(spec, apart, _with_draws(spec, apart, wide, stand_ins), stand_ins)
    if len(found) < len(results):
        raise NotReplayedError(f"`{compute.op}` gives {len(found)} of {len(results)} results")
    return tuple(value if shape is None else in_shape(value, shape) for value, shape in zip(found, results, strict=False))


def gradients(
    compute: Compute,
    operands: Sequence[Array],
    results: Sequence[Shape],
    incoming: Mapping[int, Array],
    wanted: Sequence[int],
    stand_ins: StandIns | None = None,
) -> dict[int, Array]:
    """Return the vector-Jacobian products for the operands `wanted`; `incoming` are the gradients of results, by position."""
    spec, call = _call(compute.op, compute.inputs, compute.attributes, operands, results)
    apart, wide = _with_heads_apart(spec, call, operands)
    wide = _with_draws(spec, apart, wide, stand_ins)
    found = {position: _gradient(spec, apart, wide, incoming, position, stand_ins) for position in wanted}
    return {position: _of_shared(value, operands[position].shape) for position, value in found.items()}


def _call(
    op: str, inputs: Sequence[object], attributes: Mapping[str, object], operands: Sequence[Array], results: Sequence[Shape]
) -> tuple[OpSpec, Call]:
    spec = spec_of(op)
    if spec is None:
        raise NotReplayedError(str(attributes.get(NOT_UNDERSTOOD, f"`{without_overload(op)}` is not in the operator table")))
    shapes = iter(operands)
    given = tuple(each_input if isinstance(each_input, Literal) else next(shapes).shape for each_input in inputs)
    return spec, Call(op, given, attributes, tuple(results))  # type: ignore[arg-type]


def _with_heads_apart(spec: OpSpec, call: Call, operands: Sequence[Array]) -> tuple[Call, Sequence[Array]]:
    """Return attention whose heads of queries share keys and values with these written out for each head of queries."""
    import numpy as np

    if Trait.ATTENTION not in spec.traits or len(operands) < 3 or not shares_heads(call):
        return call, operands
    query, key, value, *rest = operands
    times, left = divmod(query.shape[-3], max(1, key.shape[-3]))
    if left:
        raise NotReplayedError(f"`{call.op}` of {query.shape[-3]} heads of queries and {key.shape[-3]} of keys")
    wide = [query, np.repeat(key, times, axis=-3), np.repeat(value, times, axis=-3), *rest]
    arrays = iter(wide)
    inputs = tuple(each_input if isinstance(each_input, Literal) else next(arrays).shape for each_input in call.inputs)
    attributes = {name: attribute for name, attribute in call.attributes.items() if name != "enable_gqa"}
    return Call(call.op, inputs, attributes, call.outputs), wide


def _of_shared(gradient: Array, shape: Shape) -> Array:
    """Return the gradient of heads from that of the heads that they were taken as: the sum over those."""
    import numpy as np

    if gradient.size == prod(shape):
        return gradient
    return np.asarray(gradient.reshape(*shape[:-2], -1, *shape[-2:]).sum(axis=-3))


def _with_draws(spec: OpSpec, call: Call, operands: Sequence[Array], stand_ins: StandIns | None) -> Sequence[Array]:
    """Return the operands, and behind them the random numbers of an operator that draws some."""
    bound = _bind(spec, call) if spec.may_draw else None
    if stand_ins is None or bound is None or bound.draws is None:
        return operands
    return [*operands, stand_ins.drawn(bound, operands)]


def _bind(spec: OpSpec, call: Call) -> Bound:
    try:
        return spec.bind(call)
    except UnsupportedError as error:
        raise NotReplayedError(str(error)) from None


def _evaluate(spec: OpSpec, call: Call, operands: Sequence[Array], stand_ins: StandIns | None = None) -> tuple[Array, ...]:
    import numpy as np

    if spec.family is Family.RESHAPE:
        return (in_shape(operands[0], call.outputs[0]),)
    bound = _bind(spec, call)
    if bound.draws is not None and len(operands) == len(bound.operands):
        raise NotReplayedError(f"`{call.op}` draws random numbers")
    if spec.evaluate is None and stand_ins is None:
        raise NotReplayedError(f"the operator table has no numbers for `{call.op}`")
    try:
        if spec.evaluate is None:
            assert stand_ins is not None
            return stand_ins.results(bound.given_draws(), call, operands)
        _check_indices(bound, call, operands)
        with np.errstate(all="ignore"):
            return spec.evaluate(bound, operands, Floats())
    except UnsupportedError as error:
        raise NotReplayedError(str(error)) from None


_IGNORED = -100
"""A class that losses leave out."""


def _check_indices(bound: Bound, call: Call, operands: Sequence[Array]) -> None:
    """Raise NotReplayedError where an index is beyond what it is looked up in, unless a range is stated."""
    import numpy as np

    if "start" in call.attributes:
        return
    both = zip(bound.operands, operands, strict=False)
    named = [pair for names, operand in both for pair in zip(names, operand.shape, strict=True)]
    sizes = dict(named)
    for place, name in bound.indices.items():
        given = np.real(operands[place])
        if name in sizes and not np.all(((given >= 0) & (given < sizes[name])) | (given == _IGNORED)):
            raise NotReplayedError(f"an index of `{call.op}` is beyond the {sizes[name]} that it looks up in")


def in_shape(value: Array, shape: Shape) -> Array:
    """Return a value in the shape that is declared for it. Raises NotReplayedError where it has another number of elements."""
    import numpy as np

    array = np.asarray(value)
    if array.shape == shape:
        return array
    if array.size != prod(shape):
        raise NotReplayedError(f"a value of shape {array.shape} is declared {shape}")
    return array.reshape(shape)


def _gradient(
    spec: OpSpec,
    call: Call,
    operands: Sequence[Array],
    incoming: Mapping[int, Array],
    position: int,
    stand_ins: StandIns | None = None,
) -> Array:
    if spec.family is Family.RESHAPE:
        return in_shape(incoming[0], operands[0].shape)
    steps = spec.steps(call) if spec.steps is not None else ()
    if steps:
        return _through(steps, call, operands, incoming[0], position)
    bound = _bind(spec, call).given_draws()
    if position in bound.zero_gradient or position in bound.shape_only:
        import numpy as np

        return np.zeros(operands[position].shape)
    looked_up = _looked_up(bound, operands, incoming, position)
    if looked_up is not None:
        return looked_up
    if _is_sum(bound):
        return _spread(spec, call, bound, operands, incoming[0])
    if Trait.CONTRACTION in spec.traits and len(operands) == 2:
        contracted = _contracted(bound, operands, incoming[0], position)
        if contracted is not None:
            return contracted
    if spec.evaluate is None and stand_ins is not None:
        try:
            return stand_ins.gradient(bound, call, operands, incoming, position)
        except UnsupportedError as error:
            raise NotReplayedError(str(error)) from None
    return _by_steps(spec, call, bound, operands, incoming, position)


def _through(steps: Steps, call: Call, operands: Sequence[Array], incoming: Array, position: int) -> Array:
    """Return the gradient through operators in sequence."""
    import numpy as np

    made: list[Array] = []
    for name, places in steps:
        results: Sequence[Shape] = call.outputs if len(made) + 1 == len(steps) else ()
        arrays = _operands(places, operands, made)
        made.append(np.asarray(_evaluate(*_step(name, places, arrays, results), arrays)[0]))
    known = {len(steps) - 1: incoming.reshape(made[-1].shape)}
    total = np.zeros(operands[position].shape)
    for index, (name, places) in reversed([*enumerate(steps)]):
        arrays = _operands(places, operands, made[:index])
        spec, inner = _step(name, places, arrays, (made[index].shape,))
        for at, place in enumerate(place for place in places if isinstance(place, int)):
            if index in known and (place < 0 or place == position):
                gradient = _gradient(spec, inner, arrays, {0: known[index]}, at)
                if place < 0:
                    known[index + place] = known.get(index + place, 0) + gradient
                else:
                    total = total + gradient
    return total


def _operands(places: Sequence[int | Literal], operands: Sequence[Array], made: Sequence[Array]) -> list[Array]:
    """Return the tensors that a step reads: operands of the whole, or results of the steps that many before."""
    return [made[place] if place < 0 else operands[place] for place in places if isinstance(place, int)]


def _step(
    name: str, places: Sequence[int | Literal], operands: Sequence[Array], results: Sequence[Shape]
) -> tuple[OpSpec, Call]:
    spec, shapes = spec_of(name), iter([operand.shape for operand in operands])
    if spec is None:
        raise NotReplayedError(f"`{name}` is not in the operator table")
    inputs = tuple(place if isinstance(place, Literal) else next(shapes) for place in places)
    return spec, Call(name, inputs, {}, tuple(results))


def _looked_up(bound: Bound, operands: Sequence[Array], incoming: Mapping[int, Array], position: int) -> Array | None:
    """Return the gradient of a table that indices are looked up in: each row gets what came from its uses."""
    import numpy as np

    tables = {name for name in bound.indices.values() if name in bound.operands[position] and name in bound.reduced}
    places = [at for at, name in bound.indices.items() if name in tables]
    if len(places) != 1 or bound.operands[position][:1] != tuple(tables) or len(incoming) != 1:
        return None
    rows = bound.operands[places[0]]
    if bound.outputs[0] != (*rows, *bound.operands[position][1:]):
        return None
    (name,) = tables
    result = np.zeros(tuple(operands[position].shape))
    start, stop = bound.ranges.get(name, (0, result.shape[0]))
    indices = operands[places[0]].astype(int) - start
    here = (indices >= 0) & (indices < min(stop - start, result.shape[0]))
    padding = bound.attributes[0] if bound.attributes else None
    if isinstance(padding, int):
        here = here & (operands[places[0]].astype(int) != padding)
    np.add.at(result, indices[here], incoming[0][here])
    return result


def _is_sum(bound: Bound) -> bool:
    """Return whether the operator is a sum or mean of its one operand over some of its names."""
    gone = bound.reduced | bound.averaged
    one = len(bound.operands) == len(bound.outputs) == 1 and bound.linear == (frozenset({0}),)
    return one and bool(gone) and not bound.whole and set(bound.operands[0]) - gone >= set(bound.outputs[0]) - {"1"}


def _spread(spec: OpSpec, call: Call, bound: Bound, operands: Sequence[Array], incoming: Array) -> Array:
    """Return the gradient of a sum: each element gets the gradient of the sum that it is in."""
    import numpy as np

    names, sizes = bound.operands[0], operands[0].shape
    kept = [name for name in bound.outputs[0] if name != "1"]
    array = incoming.reshape([sizes[names.index(name)] for name in kept])
    ordered = array.transpose([kept.index(name) for name in names if name in kept])
    count = prod(size for name, size in zip(names, sizes, strict=True) if name in bound.averaged)
    wide = ordered.reshape([size if name in kept else 1 for name, size in zip(names, sizes, strict=True)])
    return np.array(np.broadcast_to(wide / count, sizes))


def _contracted(bound: Bound, operands: Sequence[Array], incoming: Array, position: int) -> Array | None:
    """Return the gradient of a sum of products of two operands: the product of what came in and the other operand.

    None where a dimension of the operand is in neither of these.
    """
    import numpy as np

    other = 1 - position
    operand_names, result = bound.operands[position], bound.outputs[0]
    if not {name for name in operand_names if name != ONE} <= {*result, *bound.operands[other]} or bound.averaged:
        return None
    numbers = {
        name: at for at, name in enumerate(dict.fromkeys((*result, *operand_names, *bound.operands[other]))) if name != ONE
    }
    arguments: list[Any] = []
    for array, names in ((incoming, result), (operands[other], bound.operands[other])):
        sizes = [size for size, name in zip(array.shape, names, strict=True) if name != ONE]
        arguments += [array.reshape(sizes), [numbers[name] for name in names if name != ONE]]
    found = np.einsum(*arguments, [numbers[name] for name in operand_names if name != ONE], optimize=True)
    return np.asarray(found).reshape(operands[position].shape)


def _by_steps(
    spec: OpSpec,
    call: Call,
    bound: Bound,
    operands: Sequence[Array],
    incoming: Mapping[int, Array],
    position: int,
) -> Array:
    """Return the gradient by tiny imaginary steps; elements that no common result depends on are moved together."""
    import numpy as np

    operand_names, sizes = bound.operands[position], operands[position].shape
    common = [name for name in operand_names if _is_separate(name, bound, incoming)]
    apart = [i for i, name in enumerate(operand_names) if name not in common]
    places = list(product(*(range(sizes[i]) for i in apart)))
    work = len(places) * max(prod(operand.shape) for operand in operands)
    if work > MOST_WORK:
        raise NotReplayedError(f"the gradient of `{call.op}` at this size takes too long")
    result = np.zeros(sizes)
    for place in places:
        index: list[int | slice] = [slice(None)] * len(sizes)
        for i, at in zip(apart, place, strict=True):
            index[i] = at
        moved = list(operands)
        moved[position] = operands[position].astype(complex)
        moved[position][tuple(index)] += 1j * _STEP
        outputs = _evaluate(spec, call, moved)
        total = 0
        for at, gradient in incoming.items():
            names = bound.outputs[at]
            slope = np.imag(np.asarray(outputs[at])).reshape(gradient.shape) * gradient / _STEP
            gone = tuple(i for i, name in enumerate(names) if name not in common)
            left = [name for name in names if name in common]
            total = total + slope.sum(axis=gone).transpose([left.index(name) for name in operand_names if name in common])
        result[tuple(index)] = total
    return result


def _is_separate(name: str, bound: Bound, incoming: Mapping[int, Array]) -> bool:
    """Return whether a result depends on the operand elements at its own place along a name alone."""
    return (
        name != "1"
        and name not in bound.whole
        and name not in bound.reduced
        and name not in bound.averaged
        and all(name in bound.outputs[at] for at in incoming)
    )
