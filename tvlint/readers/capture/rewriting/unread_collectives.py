"""Collectives whose results no rank reads, with zeros in the place of what is sent.

So ranks tell each other how many tokens they send or have sent; the collective itself stays, since the others wait for it. What
one rank alone does not read, as of a sum that another one sends back, keeps its numbers: the others read them.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from tvlint.ir.operators import Literal
from tvlint.readers.capture.lifting.lift import Call, Lifted, LiftedNode, read_in
from tvlint.readers.capture.lifting.program import Exchange
from tvlint.readers.capture.rewriting.equal_broadcasts import together


def with_nothing_in_unread_collectives(lifted: Sequence[Lifted]) -> list[Lifted]:
    """Return the programs of all ranks with zeros in the collectives whose results none of the group reads."""
    read = [_read(program) for program in lifted]
    unread: set[int] = set()
    for nodes in together([[node for node in program.nodes if isinstance(node, Exchange)] for program in lifted]):
        if all(len(node.inputs) == 1 and read[rank].isdisjoint(node.outputs) for rank, node in nodes):
            unread.update(id(node) for _, node in nodes)
    return [_with_nothing_in(program, unread) for program in lifted]


def _read(lifted: Lifted) -> set[str]:
    """Return the values that nodes read, and those that the program is compared by."""
    return read_in(lifted) | {name for name, _ in lifted.gradients.values()} | {root.value for root in lifted.roots}


def _with_nothing_in(lifted: Lifted, unread: Set[int]) -> Lifted:
    """Return a program with zeros in some collectives."""
    nodes: list[LiftedNode] = []
    for node in lifted.nodes:
        if isinstance(node, Exchange) and id(node) in unread:
            type = lifted.program.types[node.inputs[0]]
            zeros = lifted.program.fresh(type)
            nodes.append(Call("torch.zeros", (Literal(type.shape),), {"dtype": type.dtype}, (zeros,), node.mark))
            node = replace(node, inputs=(zeros,))
        nodes.append(node)
    return replace(lifted, nodes=nodes)
