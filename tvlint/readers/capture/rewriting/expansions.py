"""Expansions that no operator needs: the repetition of a value along a dimension in which another operand is as wide.

`x + expand(y)` is `x + y` for each operator that works element by element, since it repeats `y` itself; a lookup at repeated
indices is the repeated lookup, and its gradient that of the lookup at each index, of the summed gradients. Positions and masks
are made that way for as many samples as a rank has, of which nothing else depends on the number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tvlint.ir.operators import Literal
from tvlint.ops.table import LOOKUP, canonical_name
from tvlint.readers.capture.lifting.factors import is_elementwise
from tvlint.readers.capture.lifting.lift import Call, GradientOf, Lifted, LiftedNode, outputs_of
from tvlint.readers.capture.lifting.program import Ref, Type

_EXPAND = "torch.Tensor.expand"


def without_expansions(lifted: Lifted) -> Lifted:
    """Return the program without expansions that its operators make themselves."""
    types = lifted.program.types
    differentiated = {id(node.forward) for node in lifted.nodes if isinstance(node, GradientOf)}
    makers: dict[str, LiftedNode] = {}
    narrowed: dict[int, tuple[Call, tuple[int, ...]]] = {}
    nodes: list[LiftedNode] = []
    for node in lifted.nodes:
        made: list[LiftedNode] = [node]
        if isinstance(node, Call) and canonical_name(node.op) == LOOKUP:
            made = _lookup(lifted, node, makers, narrowed)
        elif isinstance(node, Call) and id(node) not in differentiated and is_elementwise(node, types):
            made = [_narrow(node, makers, types)]
        elif isinstance(node, GradientOf) and id(node.forward) in narrowed:
            made = _gradient(lifted, node, *narrowed[id(node.forward)])
        for made_node in made:
            nodes.append(made_node)
            makers.update(dict.fromkeys(outputs_of(made_node), made_node))
    return replace(lifted, nodes=nodes)


def _source(value: object, makers: Mapping[str, LiftedNode]) -> str | None:
    """Return the value that a value repeats; None where it repeats none."""
    maker = makers.get(value.name) if isinstance(value, Ref) else None
    if not isinstance(maker, Call) or maker.op != _EXPAND or not isinstance(maker.inputs[0], Ref):
        return None
    return maker.inputs[0].name


def _narrow(call: Call, makers: Mapping[str, LiftedNode], types: Mapping[str, Type]) -> Call:
    """Return the call on what its operands repeat, where the others are as wide as its result."""
    result = types[call.outputs[0]].shape
    inputs = list(call.inputs)
    for at, argument in enumerate(inputs):
        source = _source(argument, makers)
        if source is None:
            continue
        shapes = [
            types[each_input.name].shape
            for place, each_input in enumerate(inputs)
            if isinstance(each_input, Ref) and place != at
        ]
        if _broadcast([*shapes, types[source].shape]) == result:
            inputs[at] = Ref(source)
    return replace(call, inputs=tuple(inputs)) if tuple(inputs) != call.inputs else call


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of the result of an operator that works element by element on operands of these shapes."""
    rank = max((len(shape) for shape in shapes), default=0)
    aligned = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*aligned, strict=True))


def _lookup(
    lifted: Lifted, call: Call, makers: Mapping[str, LiftedNode], narrowed: dict[int, tuple[Call, tuple[int, ...]]]
) -> list[LiftedNode]:
    """Return the lookup at the indices that are repeated, and the repetition of its result."""
    source = _source(call.inputs[0], makers)
    if source is None:
        return [call]
    (result,), types = call.outputs, lifted.program.types
    indices, wide = types[source].shape, types[result].shape
    if len(indices) != len(wide) - 1:
        return [call]
    found = lifted.program.fresh(types[result].of_shape((*indices, wide[-1])))
    this_call = replace(call, inputs=(Ref(source), *call.inputs[1:]), outputs=(found,))
    repeated = tuple(dim for dim, (here, there) in enumerate(zip(indices, wide, strict=False)) if here != there)
    narrowed[id(call)] = this_call, repeated
    return [this_call, Call(_EXPAND, (Ref(found),), {"size": wide}, (result,), call.mark)]


def _gradient(lifted: Lifted, node: GradientOf, forward: Call, repeated: tuple[int, ...]) -> list[LiftedNode]:
    """Return the gradient of the lookup at the indices that are repeated, of the sum of the gradients of all repetitions."""
    types = lifted.program.types
    type = types[forward.outputs[0]]
    rest = tuple(size for dim, size in enumerate(type.shape) if dim not in repeated)
    summed, viewed = lifted.program.fresh(type.of_shape(rest)), lifted.program.fresh(type)
    return [
        Call("torch.sum", (Ref(node.inputs[0]),), {"dim": repeated, "keepdim": False}, (summed,), node.mark),
        Call("torch.Tensor.view", (Ref(summed), Literal(type.shape)), {}, (viewed,), node.mark),
        replace(node, forward=forward, inputs=(viewed,)),
    ]
