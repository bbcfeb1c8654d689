"""What the backward of an operator makes of the placements of gradients."""

from __future__ import annotations

from math import prod

from tvlint.analyses.placed import Placed
from tvlint.analyses.placed_compute import gradient_form
from tvlint.analyses.placed_forward import apply, bind
from tvlint.analyses.placed_reshape import reshaped
from tvlint.analyses.placed_scales import of_backward
from tvlint.analyses.placed_walk import Walk
from tvlint.ir.placement import Replicate
from tvlint.ir.plan import Backward, Literal
from tvlint.ops.spec import Family


def backward(walk: Walk, operator: Backward) -> None:
    """Places the gradients that `operator` gives."""
    of_backward(walk, operator)
    _start(walk, operator)
    found = bind(walk, operator.forward)
    present = [at for at, name in enumerate(operator.inputs) if name]
    tensors = [name for name in operator.forward.inputs if not isinstance(name, Literal)]
    for position, gradient in enumerate(operator.outputs):
        if not gradient:
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


def _start(walk: Walk, operator: Backward) -> None:
    """A gradient of one number that nothing produces is where the backward pass starts: 1 on every rank."""
    for name, output in zip(operator.inputs, operator.forward.outputs, strict=False):
        shape = walk.shape(output)
        if name and name not in walk.values and shape is not None and prod(shape) == 1 and not walk.value(name).on:
            walk.values[name] = Placed({axis: Replicate() for axis in walk.axes})
