"""Leave out what nothing reads: values without effect on gradients, roots and messages."""

from __future__ import annotations

from dataclasses import replace

from tvlint.readers.capture.lifting.lift import Call, GradientOf, Lifted, LiftedNode, inputs_of, outputs_of


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
