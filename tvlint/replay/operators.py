"""One operator, and its gradient, on numbers, from its row of the operator table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

from tvlint.ir.operators import NOT_UNDERSTOOD, Compute, Literal
from tvlint.ops import derivatives
from tvlint.ops.families.attention import shares_heads
from tvlint.ops.families.shaping import viewed_shape
from tvlint.ops.field import Array, Field, Floats
from tvlint.ops.spec import Bound, Call, Family, OpSpec, Trait, UnsupportedError
from tvlint.ops.spelling import without_overload
from tvlint.ops.table import spec_of
from tvlint.plurals import counted
from tvlint.replay.stand_ins import StandIns

Shape = tuple[int, ...]


class NotReplayedError(Exception):
    """The operator table does not say what an operator computes, or it would take too long."""


class BeyondTableError(NotReplayedError):
    """An operator looks up beyond the end of what it looks up in, which no framework does."""


def forward(
    compute: Compute, operands: Sequence[Array], results: Sequence[Shape | None], stand_ins: StandIns | None = None
) -> tuple[Array, ...]:
    """Return the results of a computation on its tensor operands, in the shapes that the plan declares for them, if it does.

    An operator that draws random numbers, or has none in the table, is run where `stand_ins` are given.
    """
    shapes = [shape for shape in results if shape is not None]
    whole = shapes if len(shapes) == len(results) else ()
    spec, call = _call(compute.op, compute.inputs, compute.attributes, operands, whole)
    found = _evaluate(spec, call, stand_ins, operands, Floats())
    if len(found) < len(results):
        raise NotReplayedError(f"`{compute.op}` gives {len(found)} of {counted(len(results), 'result')}")
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
    if spec.family is Family.RESHAPE:
        return dict.fromkeys(wanted, in_shape(incoming[0], operands[0].shape))
    bound = _bind(spec, _with_heads_apart(spec, call, operands)[0])
    given = {position: _known_gradient(bound, operands, incoming, position) for position in wanted}
    found = {position: value for position, value in given.items() if value is not None}
    rest = [position for position in wanted if position not in found]
    if rest:
        found |= derivatives.gradients(partial(_evaluate, spec, call, stand_ins), operands, rest, incoming)
    return found


def _call(
    op: str, inputs: Sequence[object], attributes: Mapping[str, object], operands: Sequence[Array], results: Sequence[Shape]
) -> tuple[OpSpec, Call]:
    spec = spec_of(op)
    if spec is None:
        raise NotReplayedError(str(attributes.get(NOT_UNDERSTOOD, f"`{without_overload(op)}` is not in the operator table")))
    if any(0 in operand.shape for operand in operands):
        raise NotReplayedError(f"`{without_overload(op)}` of no elements")
    shapes = iter(operands)
    given = tuple(each_input if isinstance(each_input, Literal) else next(shapes).shape for each_input in inputs)
    return spec, Call(op, given, attributes, tuple(results))  # type: ignore[arg-type]


_DIMENSIONS_WITH_HEADS = 3

_MOST_ELEMENTS = 1 << 26
"""The most elements that an operator gives; a plan may declare another number than its operators make."""


def _with_heads_apart(spec: OpSpec, call: Call, operands: Sequence[Array]) -> tuple[Call, Sequence[Array]]:
    """Return attention whose heads of queries share keys and values with these written out for each head of queries."""
    import numpy as np

    if Trait.ATTENTION not in spec.traits or len(operands) < 3 or not shares_heads(call):
        return call, operands
    query, key, value, *rest = operands
    if min(query.ndim, key.ndim, value.ndim) < _DIMENSIONS_WITH_HEADS:
        raise NotReplayedError(f"`{call.op}` of tensors without heads")
    times, left = divmod(query.shape[-3], max(1, key.shape[-3]))
    if left:
        raise NotReplayedError(f"`{call.op}` of {query.shape[-3]} heads of queries and {key.shape[-3]} of keys")
    wide = [query, np.repeat(key, times, axis=-3), np.repeat(value, times, axis=-3), *rest]
    arrays = iter(wide)
    inputs = tuple(each_input if isinstance(each_input, Literal) else next(arrays).shape for each_input in call.inputs)
    attributes = {name: attribute for name, attribute in call.attributes.items() if name != "enable_gqa"}
    return Call(call.op, inputs, attributes, call.outputs), wide


def _bind(spec: OpSpec, call: Call) -> Bound:
    try:
        return spec.bind(call)
    except UnsupportedError as error:
        raise NotReplayedError(str(error)) from None


def _evaluate(
    spec: OpSpec, call: Call, stand_ins: StandIns | None, operands: Sequence[Array], field: Field
) -> tuple[Array, ...]:
    import numpy as np

    if spec.family is Family.RESHAPE:
        return (in_shape(operands[0], call.outputs[0] if call.outputs else _viewed(call)),)
    call, operands = _with_heads_apart(spec, call, operands)
    bound = _bind(spec, call)
    if bound.draws is not None and stand_ins is None:
        raise NotReplayedError(f"`{call.op}` draws random numbers")
    if bound.draws is not None and stand_ins is not None:
        operands = [*operands, stand_ins.drawn(bound, operands)]
    if spec.evaluate is None and stand_ins is None:
        raise NotReplayedError(f"the operator table has no numbers for `{call.op}`")
    try:
        if spec.evaluate is None:
            assert stand_ins is not None
            return stand_ins.results(bound.given_draws(), call, operands, field)
        _check_indices(bound, call, operands)
        _check_sizes(bound, call)
        with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
            return spec.evaluate(bound, operands, field)
    except UnsupportedError as error:
        raise NotReplayedError(str(error)) from None


def _viewed(call: Call) -> Shape:
    try:
        return viewed_shape(call, call.shape(0))
    except UnsupportedError as error:
        raise NotReplayedError(str(error)) from None


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
        given = given if bound.no_index is None else given[given != bound.no_index]
        if name in sizes and not np.all((given >= 0) & (given < sizes[name])):
            error = BeyondTableError if np.any(given >= sizes[name]) else NotReplayedError
            raise error(f"an index of `{call.op}` is beyond the {sizes[name]} that it looks up in")


def _check_sizes(bound: Bound, call: Call) -> None:
    """Raise NotReplayedError where a result is larger than any that is run, whatever the plan declares."""
    sizes = bound.sizes_of(call.op, call.shapes)
    if any(prod(sizes.get(name, 1) for name in names) > _MOST_ELEMENTS for names in bound.outputs):
        raise NotReplayedError(f"`{call.op}` gives more elements than are run")


def in_shape(value: Array, shape: Shape) -> Array:
    """Return a value in the shape that is declared for it. Raises NotReplayedError where it has another number of elements."""
    import numpy as np

    array = np.asarray(value)
    if array.shape == shape:
        return array
    if array.size != prod(shape):
        raise NotReplayedError(f"a value of shape {array.shape} is declared {shape}")
    return array.reshape(shape)


def _known_gradient(bound: Bound, operands: Sequence[Array], incoming: Mapping[int, Array], position: int) -> Array | None:
    """Return a gradient that is not that of what the operator computes, or that is known without it."""
    import numpy as np

    if position in bound.zero_gradient or position in bound.shape_only:
        return np.zeros(operands[position].shape)
    return _looked_up(bound, operands, incoming, position)


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
