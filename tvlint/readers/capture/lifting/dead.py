"""Leave out what nothing reads: values without effect on gradients, roots and messages."""

from __future__ import annotations

from dataclasses import replace

from tvlint.ir.operators import Literal
from tvlint.readers.capture.lifting.lift import Call, GradientOf, Lifted, LiftedNode, inputs_of, outputs_of, read_in
from tvlint.readers.capture.lifting.program import Exchange


def without_dead(lifted: Lifted) -> Lifted:
    """Return the program up to the optimizer, without computations whose results nothing reads."""
    live = {name for name, _ in lifted.gradients.values()}
    for root in lifted.roots:
        live |= {root.value, root.start}
    kept: list[LiftedNode] = []
    for node in reversed(lifted.nodes):
        if node.mark.phase == "optimizer":
            continue
        computes = isinstance(node, Call | GradientOf)
        if computes and not live.intersection(outputs_of(node)):
            continue
        kept.append(node)
        live.update(inputs_of(node))
        if isinstance(node, GradientOf):
            live.update(node.forward.outputs)
            live.update(inputs_of(node.forward))
    return replace(lifted, nodes=kept[::-1])


def with_nothing_in_unread_collectives(lifted: Lifted) -> Lifted:
    """Return the program with zeros in the collectives whose results nothing reads.

    So ranks tell each other how many tokens they send or have sent; the collective itself stays, since the others wait for it.
    """
    read = read_in(lifted)
    read |= {name for name, _ in lifted.gradients.values()} | {root.value for root in lifted.roots}
    nodes: list[LiftedNode] = []
    for node in lifted.nodes:
        if isinstance(node, Exchange) and len(node.inputs) == 1 and read.isdisjoint(node.outputs):
            type = lifted.program.types[node.inputs[0]]
            zeros = lifted.program.fresh(type)
            nodes.append(Call("torch.zeros", (Literal(type.shape),), {"dtype": type.dtype}, (zeros,), node.mark))
            node = replace(node, inputs=(zeros,))
        nodes.append(node)
    return replace(lifted, nodes=nodes)
