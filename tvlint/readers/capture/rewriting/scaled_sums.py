"""Sums that one rank alone is given, and that are multiplied by a number then, as by one over a count of tokens.

A number times a sum is the sum of the number times each addend. So each rank multiplies what it adds, and the rank that is
given the sum has it; the others multiplied what was no sum. That they multiply by the same number is assumed, and listed.
"""

from __future__ import annotations

from dataclasses import replace

from tvlint.readers.capture.lifting.lift import Call, Lifted, LiftedNode, inputs_of, outputs_of, readers_of, waited_in_time
from tvlint.readers.capture.lifting.program import End, Exchange, Ref


def with_scaled_addends(lifted: Lifted) -> Lifted:
    """Return the program with each sum on one rank that is multiplied by a number as a sum of multiplied addends."""
    ended = waited_in_time(lifted)
    sums = {
        node.outputs[0]: node
        for node in lifted.nodes
        if isinstance(node, Exchange) and node.kind == "reduce" and node.reduce == "sum" and node.handle in ended
    }
    scaled = {id(node): sums[name] for node in lifted.nodes for name in _scaled(node, lifted) if name in sums}
    readers = readers_of(lifted)
    scaled = {key: node for key, node in scaled.items() if len(readers[node.outputs[0]]) == 1}
    gone = {id(node) for node in scaled.values()}
    handles = {node.handle for node in scaled.values()} - {""}
    nodes: list[LiftedNode] = []
    for node in lifted.nodes:
        if id(node) in scaled and isinstance(node, Call):
            nodes += _of_addends(node, scaled[id(node)], lifted)
        elif id(node) not in gone and not (isinstance(node, End) and node.handle in handles):
            nodes.append(node)
    marks = tuple(node.mark for node in lifted.nodes if id(node) in scaled)
    return replace(lifted, nodes=nodes, multiplied=marks)


def _scaled(node: LiftedNode, lifted: Lifted) -> tuple[str, ...]:
    """Return the values that a node multiplies by a value that is one number."""
    operands = inputs_of(node) if isinstance(node, Call) and node.op == "torch.mul" else ()
    if len(operands) != 2 or lifted.program.shape(operands[0]) != lifted.program.shape(outputs_of(node)[0]):
        return ()
    return operands[:1] if lifted.program.shape(operands[1]) in ((), (1,)) else ()


def _of_addends(node: Call, total: Exchange, lifted: Lifted) -> tuple[Call, Exchange]:
    addend = lifted.program.fresh(lifted.program.types[node.outputs[0]])
    product = replace(node, inputs=(Ref(total.inputs[0]), *node.inputs[1:]), outputs=(addend,))
    return product, replace(total, inputs=(addend,), outputs=node.outputs, handle="", mark=node.mark)
