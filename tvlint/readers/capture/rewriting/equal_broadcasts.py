"""Broadcasts of what is known: of numbers that each rank holds already, or of one that the root's value is throughout.

`DistributedDataParallel` broadcasts buffers where it will reduce gradients. What they hold in the
beginning is recorded on every rank. Ranks also add up numbers that they know, as counts of their samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from tvlint.readers.capture.lifting.lift import Lifted, function_of
from tvlint.readers.capture.lifting.masks import moved
from tvlint.readers.capture.lifting.program import Apply, Array, End, Exchange, Node, Program, Ref, references
from tvlint.readers.capture.tapes.spelling import MOVES


def without_equal_broadcasts(programs: Sequence[Program]) -> list[Program]:
    """Return the programs of all ranks with views in place of broadcasts of what the ranks of the group hold alike."""
    numbers = [_Numbers(program) for program in programs]
    same: set[int] = set()
    for nodes in together([list(_broadcasts(program)) for program in programs]):
        held = [numbers[rank].of(node.inputs[0]) for rank, node in nodes]
        first = held[0]
        if first is not None and all(array is not None and _are_equal(array, first) for array in held):
            same.update(id(node) for _, node in nodes)
            for rank, node in nodes:
                numbers[rank].received.update(dict.fromkeys(node.outputs, first))
    return [_without(program, same) if same else program for program in programs]


def received_numbers(lifted: Sequence[Lifted]) -> list[dict[str, float | None]]:
    """Return, by rank, the values that are one number throughout because of what other ranks hold.

    A broadcast gives what its root computed, a sum what ranks with different numbers add up: None where one has no number.
    """
    received: list[dict[str, float | None]] = [{} for _ in lifted]
    for nodes in together([list(_exchanges_of_numbers(each_lifted)) for each_lifted in lifted]):
        held = {rank: lifted[rank].numbers.get(node.inputs[0]) for rank, node in nodes}
        kinds = {(node.kind, node.reduce, node.root) for _, node in nodes}
        kind, reduce, root = kinds.pop()
        if kinds or (kind == "all-reduce" and len(set(held.values())) == 1):
            continue
        known = [number for number in held.values() if number is not None]
        total = _COMBINED[reduce](known) if kind == "all-reduce" and len(known) == len(held) else None
        total = held.get(root) if kind == "broadcast" and root is not None else total
        for rank, node in nodes if total is not None or kind == "all-reduce" else ():
            received[rank].update(dict.fromkeys(node.outputs, total))
    return received


_COMBINED: Mapping[str, Callable[[Sequence[float]], float]] = {"sum": sum, "": sum, "avg": fmean, "max": max, "min": min}
"""What ranks with different numbers are given, by how they reduce them."""


def _exchanges_of_numbers(lifted: Lifted) -> Iterator[Exchange]:
    """Yield the collectives that may give numbers that are known."""
    for node in (node for node in lifted.nodes if isinstance(node, Exchange) and len(node.inputs) == 1):
        if node.kind == "broadcast" or (node.kind == "all-reduce" and node.reduce in _COMBINED):
            yield node


def together(exchanges: Sequence[Sequence[Exchange]]) -> Iterator[list[tuple[int, Exchange]]]:
    """Yield the collectives that the ranks of a group run together, each with its rank, of those that are given of each rank.

    Ranks whose numbers of them differ run none together.
    """
    for group in {node.group for of_rank in exchanges for node in of_rank}:
        members = [[(rank, node) for node in exchanges[rank] if node.group == group] for rank in group if rank < len(exchanges)]
        if len({len(member) for member in members}) == 1 and len(members) == len(group):
            yield from map(list, zip(*members, strict=True))


def _broadcasts(program: Program | Lifted) -> Iterator[Exchange]:
    return (node for node in program.nodes if isinstance(node, Exchange) and node.kind == "broadcast")


def _are_equal(one: Array, other: Array) -> bool:
    return bool(one.shape == other.shape and (one == other).all())


def _without(program: Program, same: set[int]) -> Program:
    """Return a program with views in place of some broadcasts, for which nothing waits then."""
    ends = {node.handle for node in _broadcasts(program) if id(node) in same} - {""}
    nodes: list[Node] = []
    for node in program.nodes:
        if isinstance(node, Exchange) and id(node) in same:
            shape = program.shape(node.outputs[0])
            nodes.append(Apply("view", {"self": Ref(node.inputs[0]), "size": shape}, node.outputs, node.mark))
        elif not isinstance(node, End) or node.handle not in ends:
            nodes.append(node)
    return replace(program, nodes=nodes)


class _Numbers:
    """The recorded numbers of a rank's values, as far as they are given ones, moved and joined, or `received` as they were."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.received: dict[str, Array] = {}
        self.makers = {name: node for node in program.nodes if isinstance(node, Apply) for name in node.outputs}

    def of(self, name: str) -> Array | None:
        """Return the numbers of a value; None where they are not known."""
        import numpy as np

        given, node = self.program.given.get(name), self.makers.get(name)
        if given is not None:
            return given.numbers
        if name in self.received:
            return self.received[name]
        if node is None or function_of(node.op) not in ("cat", *MOVES):
            return None
        held = [self.of(each_name) for argument in node.arguments.values() for each_name in references(argument)]
        known = [array for array in held if array is not None]
        if len(known) < len(held):
            return None
        if function_of(node.op) != "cat":
            return moved(node, known[0])
        dim = node.arguments.get("dim")
        return np.concatenate(known, dim if isinstance(dim, int) else 0)
