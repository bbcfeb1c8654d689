"""Ranges that each rank of a group takes by its place in the group: sequence parallelism cuts activations so.

A range of a dimension is the rank's own part where all ranks of a group run the same operators, and each takes the range that
its place in the group says. One range that all ranks take is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tvlint.ir.operators import Literal
from tvlint.readers.capture.lifting.lift import Call, LiftedNode
from tvlint.readers.capture.lifting.program import Exchange
from tvlint.readers.capture.rank import Prepared
from tvlint.readers.capture.rewriting.regather import bounds_of

_RANGE = "torch.narrow"


def with_own_parts(prepared: Sequence[Prepared]) -> tuple[Prepared, ...]:
    """Return the programs of all ranks with the ranges that are the ranks' own parts."""
    found: dict[int, LiftedNode] = {}
    for group in sorted({group for each_prepared in prepared for group in _groups(each_prepared)}):
        members = [prepared[rank].lifted.nodes for rank in group]
        if len(group) < 2 or any(_kinds(nodes) != _kinds(members[0]) for nodes in members):
            continue
        for nodes in zip(*members, strict=True):
            ranges = [node for node in nodes if isinstance(node, Call) and node.op == _RANGE]
            if len(ranges) == len(group) and _are_own(ranges, prepared, group):
                found.update((id(node), _own(node, group)) for node in ranges)
    return tuple(
        replace(each, lifted=replace(each.lifted, nodes=[found.get(id(node), node) for node in each.lifted.nodes]))
        for each in prepared
    )


def _groups(prepared: Prepared) -> Iterator[tuple[int, ...]]:
    yield from (tuple(sorted(node.group)) for node in prepared.lifted.nodes if isinstance(node, Exchange))


def _kinds(nodes: Sequence[LiftedNode]) -> list[str]:
    return [node.op if isinstance(node, Call) else type(node).__name__ for node in nodes]


def _are_own(ranges: Sequence[Call], prepared: Sequence[Prepared], group: Sequence[int]) -> bool:
    dim, _, length = bounds_of(ranges[0])
    for place, (call, rank) in enumerate(zip(ranges, group, strict=True)):
        source = call.inputs[0]
        size = prepared[rank].lifted.program.shape(source.name)[dim] if not isinstance(source, Literal) else 0
        if bounds_of(call) != (dim, place * length, length) or size != len(group) * length:
            return False
    return True


def _own(call: Call, group: tuple[int, ...]) -> Exchange:
    source = call.inputs[0]
    assert not isinstance(source, Literal)
    return Exchange("chunk", (source.name,), call.outputs, group, call.mark, dim=bounds_of(call)[0])
