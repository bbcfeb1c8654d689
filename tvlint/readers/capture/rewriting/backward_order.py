"""Let all micro-batches run their backward passes in one order, whatever a schedule puts between the parts of each.

Schedules with zero bubbles compute gradients of weights apart from those of activations, and of some micro-batches both in one
go. What is computed is the same: each operator stands as early as what it reads allows, several at one place in the order of
the first micro-batch, and what is computed twice, or in two parts, is computed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from heapq import heappop, heappush
from typing import TypeAlias, TypeGuard, TypeVar

from tvlint.readers.capture.lifting.lift import Call, GradientOf, Lifted, LiftedNode, inputs_of, makers_of, outputs_of
from tvlint.readers.capture.lifting.program import End, Exchange, Message, Ref

_Computation: TypeAlias = Call | GradientOf
_Node = TypeVar("_Node", bound=LiftedNode)
_Passes: TypeAlias = dict[int, list[_Computation]]


def with_one_backward_order(lifted: Lifted) -> tuple[Lifted, Mapping[str, str]]:
    """Return the program in which all micro-batches run their backward passes in one order, and which values others stand for.

    It stays as it is where they do so.
    """
    passes: _Passes = {}
    for node in lifted.nodes:
        if _is_of_backward(node):
            passes.setdefault(node.mark.micro_batch, []).append(node)
    if len({tuple(map(_kind, nodes)) for nodes in passes.values()}) < 2:
        return lifted, {}
    numbers, same = _numbered(lifted), dict[str, str]()
    left = _Left({batch: _once(nodes, numbers, same) for batch, nodes in passes.items()}, numbers, makers_of(lifted).keys())
    at_end: dict[str, tuple[str, ...]] = {}
    nodes: list[LiftedNode] = []
    for node in (_reading(each, same) for each in lifted.nodes):
        if not _is_of_backward(node):
            nodes.append(node)
            if isinstance(node, Exchange | Message) and node.handle:
                at_end[node.handle] = outputs_of(node)
            else:
                left.arrive(at_end.pop(node.handle, ()) if isinstance(node, End) else outputs_of(node))
        if node.mark.phase == "backward":
            nodes.extend(left.ready(node.mark.micro_batch))
    return (lifted, {}) if left.any() else (replace(lifted, nodes=nodes), same)


def _is_of_backward(node: LiftedNode) -> TypeGuard[_Computation]:
    return isinstance(node, Call | GradientOf) and node.mark.phase == "backward" and node.mark.micro_batch >= 0


def _kind(node: _Computation) -> tuple[object, ...]:
    call = node.forward if isinstance(node, GradientOf) else node
    return type(node), call.op, *map(bool, node.outputs)


class _Left:
    """The computations of backward passes that are left to run, each as soon as all that it reads is there."""

    def __init__(self, passes: _Passes, numbers: Mapping[str, int], made: Set[str]) -> None:
        self.nodes = {(batch, place): node for batch, nodes in passes.items() for place, node in enumerate(nodes)}
        self.order = {key: min(numbers[name] for name in outputs_of(node)) for key, node in self.nodes.items()}
        self.missing = {key: set(_reads(node)) & made for key, node in self.nodes.items()}
        self.readers: dict[str, list[tuple[int, int]]] = {}
        self.waiting: dict[int, list[tuple[int, int]]] = {batch: [] for batch in passes}
        for key, names in self.missing.items():
            for name in names:
                self.readers.setdefault(name, []).append(key)
            if not names:
                heappush(self.waiting[key[0]], (self.order[key], key[1]))

    def arrive(self, names: Iterable[str]) -> None:
        """Let values be there."""
        for name in names:
            for batch, place in self.readers.pop(name, ()):
                self.missing[batch, place].discard(name)
                if not self.missing[batch, place]:
                    heappush(self.waiting[batch], (self.order[batch, place], place))

    def ready(self, batch: int) -> Iterator[_Computation]:
        """Yield what a micro-batch can run now, in the order of the first one."""
        while self.waiting.get(batch):
            _, place = heappop(self.waiting[batch])
            node = self.nodes.pop((batch, place))
            yield node
            self.arrive(outputs_of(node))

    def any(self) -> bool:
        """Return whether anything is left."""
        return bool(self.nodes)


def _reads(node: _Computation) -> tuple[str, ...]:
    forward = node.forward if isinstance(node, GradientOf) else None
    return inputs_of(node) if forward is None else (*inputs_of(node), *inputs_of(forward), *forward.outputs)


def _numbered(lifted: Lifted) -> dict[str, int]:
    """Return a number for each value: what micro-batches compute alike has the same one in all of them.

    What a micro-batch is given or receives alone is identified by its place among that.
    """
    known: dict[tuple[object, ...], int] = {}
    found: dict[str, int] = {}
    counts: dict[tuple[object, ...], int] = {}

    def number(*key: object) -> int:
        return known.setdefault(key, len(known))

    def counted(*key: object) -> int:
        counts[key] = counts.get(key, -1) + 1
        return number(*key[1:], counts[key])

    named = {name for name, value in lifted.program.given.items() if value.named is not None}
    for node in lifted.nodes:
        batch = node.mark.micro_batch
        read = inputs_of(node)
        for name in read:
            if name not in found:
                found[name] = number("given", name) if name in named else counted(batch, "data")
        if isinstance(node, Call):
            operands = [found[each.name] if isinstance(each, Ref) else each for each in node.inputs]
            key: tuple[object, ...] = (node.op, *operands, *sorted(node.attributes.items()))
        elif isinstance(node, GradientOf):
            forward = [found.get(name, name) for name in (*node.forward.outputs, *inputs_of(node.forward))]
            key = ("gradient", node.forward.op, *forward, *(found.get(name, "") for name in node.inputs))
        else:
            words = (node.kind, node.group) if isinstance(node, Exchange) else ()
            key = (type(node), *words, *(found[name] for name in read), counted(batch, type(node)))
        found.update((name, number(*key, place)) for place, name in enumerate(_outputs(node)) if name)
    return found


def _outputs(node: LiftedNode) -> tuple[str, ...]:
    return node.outputs if isinstance(node, Call | GradientOf | Exchange) else outputs_of(node)


def _once(nodes: Sequence[_Computation], numbers: Mapping[str, int], same: dict[str, str]) -> list[_Computation]:
    """Return the computations without those that are there already; gradients of one call from the same are one of them.

    `same` learns which values others stand for.
    """
    called = {name for node in nodes if isinstance(node, GradientOf) for name in node.forward.outputs}
    first: dict[int, str] = {}
    places: dict[tuple[object, ...], int] = {}
    found: list[_Computation] = []
    for node in nodes:
        for name in outputs_of(node):
            other = first.setdefault(numbers[name], name)
            if other != name and name not in called:
                same[name] = other
        left = tuple("" if name in same else name for name in node.outputs)
        key = (
            (id(node),)
            if isinstance(node, Call)
            else (node.forward.outputs, tuple(same.get(name, name) for name in node.inputs))
        )
        if not any(left):
            continue
        if isinstance(node, GradientOf) and key in places:
            before = found[places[key]]
            both = tuple(one or other for one, other in zip(before.outputs, left, strict=True))
            found[places[key]] = replace(before, outputs=both)
            continue
        places[key] = len(found)
        found.append(_reading(replace(node, outputs=left) if isinstance(node, GradientOf) else node, same))
    return found


def _reading(node: _Node, same: Mapping[str, str]) -> _Node:
    """Return a node that reads values for which others stand as those."""
    if isinstance(node, Call):
        inputs = tuple(Ref(same.get(each.name, each.name)) if isinstance(each, Ref) else each for each in node.inputs)
        return node if inputs == node.inputs else replace(node, inputs=inputs)
    if isinstance(node, Message):
        return replace(node, value=same.get(node.value, node.value)) if node.sends else node
    return node if isinstance(node, End) else replace(node, inputs=tuple(same.get(name, name) for name in node.inputs))
