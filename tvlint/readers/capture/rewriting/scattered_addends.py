"""Gradients that are summed over micro-batches first and scattered then.

A reduce-scatter of a sum is the sum of the reduce-scatters of its addends, so each micro-batch scatters its own addend. A plan
sums gradients of one name over micro-batches, and has no other sum over them.
"""

from __future__ import annotations

from dataclasses import replace

from tvlint.ir.reductions import ADDING
from tvlint.readers.capture.lifting.lift import Call, Lifted, LiftedNode, inputs_of, is_move, makers_of, waited_in_time
from tvlint.readers.capture.lifting.program import End, Exchange, Ref


def with_scattered_addends(lifted: Lifted) -> Lifted:
    """Return the program with a reduce-scatter for each micro-batch in place of those of sums over micro-batches."""
    rewriting = _Rewriting(lifted)
    nodes = [each for node in lifted.nodes for each in rewriting.rewritten(node)]
    if not rewriting.following:
        return lifted
    return replace(lifted, nodes=[each for node in nodes for each in (node, *rewriting.following.get(id(node), ()))])


class _Rewriting:
    """A program while its reduce-scatters are rewritten; `following` is what is added, by the node that it comes behind."""

    def __init__(self, lifted: Lifted) -> None:
        self.program = lifted.program
        self.makers = makers_of(lifted)
        self.ended = waited_in_time(lifted)
        self.following: dict[int, list[LiftedNode]] = {}
        self.gone: set[str] = set()

    def rewritten(self, node: LiftedNode) -> list[LiftedNode]:
        """Return what stands in the place of a node: the sum of what the micro-batches scatter, or the node itself."""
        if isinstance(node, End) and node.handle in self.gone:
            return []
        sums = isinstance(node, Exchange) and node.kind == "reduce-scatter" and node.reduce in ADDING
        if not sums or not isinstance(node, Exchange) or node.handle not in self.ended:
            return [node]
        found = self._addends(node.inputs[0], ())
        addends = [(self.makers[name], moves, name) for name, moves in found if name in self.makers]
        if len({maker.mark.micro_batch for maker, _, _ in addends}) < max(2, len(found)):
            return [node]
        self.gone |= {node.handle} - {""}
        total = ""
        made: list[Call] = []
        for maker, moves, name in addends:
            word = self._scattered(node, maker, moves, name)
            result = word if not total else self.program.fresh(self.program.types[word])
            if total:
                made.append(Call("torch.add", (Ref(total), Ref(word)), {}, (result,), node.mark))
            total = result
        return [*made[:-1], replace(made[-1], outputs=node.outputs)]

    def _addends(self, value: str, moves: tuple[Call, ...]) -> list[tuple[str, tuple[Call, ...]]]:
        """Return the addends of a value, each with the moves that follow it, the first first."""
        node = self.makers.get(value)
        if isinstance(node, Call) and is_move(node.op) and isinstance(node.inputs[0], Ref):
            return self._addends(node.inputs[0].name, (node, *moves))
        operands = inputs_of(node) if isinstance(node, Call) and node.op == "torch.add" and not node.attributes else ()
        if len(operands) == 2 and all(self.program.types[operand] == self.program.types[value] for operand in operands):
            return [addend for operand in operands for addend in self._addends(operand, moves)]
        return [(value, moves)]

    def _scattered(self, node: Exchange, maker: LiftedNode, moves: tuple[Call, ...], value: str) -> str:
        """Add the reduce-scatter of one addend behind what makes it; return its result."""
        behind = self.following.setdefault(id(maker), [])
        phase, micro_batch = maker.mark.phase, maker.mark.micro_batch
        for move in moves:
            made = self.program.fresh(self.program.types[move.outputs[0]])
            mark = replace(move.mark, phase=phase, micro_batch=micro_batch)
            behind.append(replace(move, inputs=(Ref(value), *move.inputs[1:]), outputs=(made,), mark=mark))
            value = made
        result = self.program.fresh(self.program.types[node.outputs[0]])
        handle = f"{node.handle}.{micro_batch}" if node.handle else ""
        mark = replace(node.mark, phase=phase, micro_batch=micro_batch)
        behind.append(replace(node, inputs=(value,), outputs=(result,), handle=handle, mark=mark))
        if handle:
            behind.append(End(handle, mark))
        return result
