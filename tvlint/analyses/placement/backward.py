"""Backward transfer function: placements of gradients through the backward of an operator."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tvlint.analyses.dataflow.attention import is_attention
from tvlint.analyses.dataflow.canonical_names import biased, usual
from tvlint.analyses.placement.binding import bind
from tvlint.analyses.placement.domain import On, Placed
from tvlint.analyses.placement.forward import apply
from tvlint.analyses.placement.reshape import reshaped
from tvlint.analyses.placement.state import Walk
from tvlint.analyses.placement.transfer import Form, gradient_form
from tvlint.ir.operators import Backward, Compute, Literal
from tvlint.ir.placement import Invariant, Partial, Replicate, Shard
from tvlint.ops.spec import Family, stars


def backward(walk: Walk, operator: Backward) -> None:
    """Places the gradients that `operator` gives."""
    _start(walk, operator)
    forward = usual(operator.forward)
    product = biased(forward)
    if product is not None:
        _with_bias(walk, operator, *product)
        return
    found = bind(walk, forward)
    present = [at for at, name in enumerate(operator.inputs) if name]
    tensors = [name for name in forward.inputs if not isinstance(name, Literal)]
    for position, gradient in enumerate(operator.outputs):
        if not gradient:
            continue
        if found is None and is_attention(forward) and position < 3 and len(tensors) >= 3:
            walk.store(gradient, _of_attention(walk, operator, tensors, position), {}, True)
            continue
        if found is None or not present or position >= len(tensors):
            walk.store(gradient, {}, {}, True)
            continue
        spec, bound, names = found
        given = [operator.inputs[at] for at in present]
        if spec.family is Family.RESHAPE:
            value = walk.value(given[0])
            before, shape = walk.shape(given[0]), walk.shape(gradient) or walk.shape(tensors[position])
            on = {axis: reshaped(value.on.get(axis), before, shape, walk.plan.mesh.axis_size(axis)) for axis in walk.axes}
            walk.store(gradient, on, dict(value.origin), True)
            continue
        if position >= len(bound.operands) or max(present) >= len(bound.outputs):
            walk.store(gradient, {}, {}, True)
            continue
        form = gradient_form(bound, position, present)
        apply(walk, form, [*given, *names], gradient, f"backward {spec.name}", True)


def _of_attention(walk: Walk, operator: Backward, tensors: list[str], position: int) -> dict[str, On]:
    """The gradients of queries, keys and values: those of whole keys from a part of the queries are partial."""
    found: dict[str, On] = {}
    for axis in walk.axes:
        queries, keys, values = (walk.value(name).on.get(axis) for name in tensors[:3])
        start = walk.value(operator.inputs[0]).on.get(axis) if operator.inputs and operator.inputs[0] else None
        if keys != values or start != queries or not isinstance(queries, Shard | Replicate):
            continue
        if queries == keys:
            found[axis] = queries
        elif isinstance(queries, Shard) and isinstance(keys, Replicate):
            found[axis] = queries if position == 0 else Partial("sum")
    return found


def _with_bias(walk: Walk, operator: Backward, product: Compute, at: int) -> None:
    """The gradients of a product and of the bias that was added to it: the bias has the sum over all rows."""
    outputs = list(operator.outputs)
    bias = outputs.pop(at) if at < len(outputs) else ""
    if any(outputs):
        backward(walk, replace(operator, forward=product, outputs=tuple(outputs)))
    shape = walk.shape(operator.inputs[0]) if operator.inputs and operator.inputs[0] else None
    kept = walk.shape(bias) or walk.shape(str(operator.forward.inputs[at]))
    if not bias:
        return
    if shape is None or kept is None or len(kept) > len(shape):
        walk.store(bias, {}, {}, True)
        return
    names = stars(len(shape))
    gone = frozenset(names[: len(names) - len(kept)])
    form = Form((names,), names[len(gone) :], gone, frozenset(), frozenset(), (frozenset({0}),))
    apply(walk, form, [operator.inputs[0]], bias, "backward bias", True)


def _like(placement: On) -> On:
    """Return how the gradient lies with which the backward of a result starts, where nothing produces it: like the result."""
    return placement if isinstance(placement, Shard | Replicate | Invariant) else None


def _start(walk: Walk, operator: Backward) -> None:
    """A gradient of one number that nothing produces is where the backward pass starts: 1 on every rank."""
    for name, output in zip(operator.inputs, operator.forward.outputs, strict=False):
        shape = walk.shape(output)
        scalar = shape is None or prod(shape) == 1
        if name and not scalar and name not in walk.producer and name not in walk.values and not walk.value(name).on:
            tensor = walk.plan.tensors.get(name)
            if output in walk.values and (tensor is None or tensor.placements is None):
                on = {axis: _like(placement) for axis, placement in walk.value(output).on.items()}
                walk.values[name] = Placed({axis: placement for axis, placement in on.items() if placement is not None})
        if name and name not in walk.values and shape is not None and prod(shape) == 1 and not walk.value(name).on:
            walk.values[name] = Placed({axis: Replicate() for axis in walk.axes})
