"""Gradients of weights of whose rows the ranks hold unequal shards, taken as those of the whole weight.

A rank may hold no rows, as `fully_shard` leaves it of a weight with fewer rows than ranks. Such a rank gathers the rows and
scatters its addend with the others, and nothing of its program names its shard there. Which collectives are about the weight
is said by their places among those of the group, on a rank that holds rows. The rank has no gradient of its rows either; it
is given the one that the others have, by the same operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

from tvlint.readers.capture.lifting.program import Apply, Argument, Exchange, Node, Program, Ref, Type, makes
from tvlint.readers.capture.tapes.tape import Mark


@dataclass(frozen=True, slots=True)
class UnevenWeight:
    """A weight of which ranks hold unequal shards of rows: its whole shape, and the shard of each rank."""

    name: str
    whole: tuple[int, ...]
    shards: Mapping[int, tuple[int, ...]]


class NotFollowedError(Exception):
    """A shard is read in another way than is followed, by the operator with this mark."""

    def __init__(self, weight: UnevenWeight, mark: Mark | None) -> None:
        super().__init__(weight.name)
        self.weight, self.mark = weight, mark


class WholeGradient:
    """The gradient of one weight on one rank while it is taken whole.

    `groups` are the ranks that gather the weight with each rank, in the order of their rows.
    """

    def __init__(self, program: Program, weight: UnevenWeight, rank: int, groups: Mapping[int, tuple[int, ...]]) -> None:
        self.program, self.weight, self.rank, self.groups = program, weight, rank, groups
        self.makers = {name: node for node in program.nodes for name in makes(node)}
        self.wholes: dict[str, str] = {}

    def whole(self, value: str) -> str:
        """Return the whole of which a value is the rank's rows; once for each, however often it is added."""
        if value not in self.wholes:
            self.wholes[value] = self._whole(value)
        return self.wholes[value]

    def _whole(self, value: str) -> str:
        node = self.makers.get(value)
        if (
            isinstance(node, Exchange)
            and node.kind == "reduce-scatter"
            and node.group == self.groups[self.rank]
            and node.dim == 0
        ):
            return self._with(replace(node, kind="all-reduce", inputs=(self._unfilled(node),), dim=None), node)
        if isinstance(node, Exchange) and node.kind == "all-reduce" and len(node.inputs) == 1 and self._hold_equal_rows(node):
            return self._with(replace(node, inputs=(self.whole(node.inputs[0]),)), node)
        if not isinstance(node, Apply):
            raise NotFollowedError(self.weight, node.mark if node is not None else None)
        source = node.arguments.get("self")
        is_range = node.op == "view" or (node.op == "narrow" and bounds(node)[:2] == (0, 0))
        if is_range and isinstance(source, Ref):
            return self.whole(source.name)
        base, others = node.op.split(".")[1] if node.op.startswith("aten.") else "", [*node.arguments.items()]
        if base in ("mul", "div") and not any(isinstance(other, Ref) for name, other in others if name != "self"):
            assert isinstance(source, Ref)
            return self._with(replace(node, arguments={**node.arguments, "self": Ref(self.whole(source.name))}), node)
        if base == "add" and all(isinstance(other, Ref) for name, other in others if name in ("self", "other")):
            both = {name: Ref(self.whole(other.name)) if isinstance(other, Ref) else other for name, other in others}
            return self._with(replace(node, arguments=both), node)
        raise NotFollowedError(self.weight, node.mark)

    def _hold_equal_rows(self, node: Exchange) -> bool:
        """Return whether the ranks of a collective hold the same rows; a sum over others is of no weight."""
        places = {self.groups[rank].index(rank) if rank in self.groups else None for rank in node.group}
        return places == {self.groups[self.rank].index(self.rank)}

    def _with(self, node: Apply | Exchange, before: Node) -> str:
        """Put a node in the place of another; return its result, which has the shape of the weight."""
        (result,) = makes(before)
        made = self.program.fresh(Type(self.weight.whole, self.program.types[result].dtype))
        at = next(i for i, each_node in enumerate(self.program.nodes) if each_node is before)
        self.program.nodes[at : at + isinstance(node, Exchange)] = [replace(node, outputs=(made,))]
        return made

    def _unfilled(self, node: Exchange) -> str:
        """Return what is filled up with zeros behind its rows to be scattered."""
        filled = self.makers.get(node.inputs[0])
        source = filled.arguments.get("self") if isinstance(filled, Apply) else None
        if not isinstance(filled, Apply) or filled.op != "aten.constant_pad_nd.default" or not isinstance(source, Ref):
            raise NotFollowedError(self.weight, node.mark)
        *others, before, _ = _whole_numbers(filled.arguments["pad"])
        rank = len(self.weight.whole)
        if self.program.shape(source.name) != self.weight.whole or any((*others, before)) or len(others) + 2 != 2 * rank:
            raise NotFollowedError(self.weight, node.mark)
        if filled.arguments.get("value") != 0:
            raise NotFollowedError(self.weight, node.mark)
        return source.name


Whole: TypeAlias = Callable[[str], str]
"""Take the rows that a value is of for the whole of them; return the whole."""


def at_places(program: Program, group: tuple[int, ...], places: Sequence[int]) -> list[tuple[int, Exchange]]:
    """Return the collectives of a group at places among them, as far as there are."""
    issued = [node for node in program.nodes if isinstance(node, Exchange) and node.group == group]
    return [(place, issued[place]) for place in places if place < len(issued)]


def gradient_of_none(program: Program, peer: Program, value: str, shape: tuple[int, ...], whole: Whole) -> str | None:
    """Return, on a rank without rows, the whole of the gradient that `value` is on a rank with some; None where it is unknown.

    `whole` is that of the rank without rows, for the result of its collective.
    """
    makers = {name: node for node in peer.nodes for name in makes(node)}

    @cache
    def copied(name: str) -> str | None:
        node = makers.get(name)
        if isinstance(node, Exchange) and node.kind == "reduce-scatter":
            issued = [other for other in peer.nodes if isinstance(other, Exchange) and other.group == node.group]
            place = next(at for at, other in enumerate(issued) if other is node)
            found = at_places(program, node.group, [place])
            return whole(found[0][1].outputs[0]) if found and found[0][1].kind == node.kind else None
        source = node.arguments.get("self") if isinstance(node, Apply) else None
        if not isinstance(node, Apply) or not isinstance(source, Ref):
            return None
        if node.op in ("view", "narrow"):
            return copied(source.name)
        arguments: dict[str, Argument] = {}
        for key, argument in node.arguments.items():
            made = copied(argument.name) if isinstance(argument, Ref) else argument
            if made is None and isinstance(argument, Ref):
                return None
            arguments[key] = Ref(made) if isinstance(argument, Ref) and isinstance(made, str) else argument
        result = program.fresh(Type(shape, peer.types[name].dtype))
        _put_before_optimizer(program, replace(node, arguments=arguments, outputs=(result,)))
        return result

    return copied(value)


def _put_before_optimizer(program: Program, node: Apply) -> None:
    """Put an operator behind all that precede the step of the optimizer."""
    nodes = program.nodes
    at = next((place for place, each in enumerate(nodes) if each.mark.phase == "optimizer"), len(nodes))
    nodes.insert(at, node)


def bounds(node: Apply) -> tuple[object, object, object]:
    """Return the dimension, the start and the length of a narrowing."""
    return node.arguments.get("dim"), node.arguments.get("start"), node.arguments.get("length")


def _whole_numbers(argument: object) -> tuple[int, ...]:
    return tuple(each for each in argument if isinstance(each, int)) if isinstance(argument, tuple) else (0, 0)
