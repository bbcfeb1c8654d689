"""Gradients of weights that lie in a flat one, taken whole out of the range of its gradient that a rank has."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from math import prod

from tvlint.readers.capture.lifting.program import Apply, End, Exchange, Node, Program, Ref, Type, makes, reads
from tvlint.readers.capture.tapes.operations import base_of
from tvlint.readers.capture.tapes.spelling import IN_PIECES
from tvlint.readers.capture.tapes.tape import Laid, Mark, Named


class NotFlatError(Exception):
    """A flat weight, or its gradient, is read in another way than is followed, by the operator with this mark."""

    def __init__(self, flat: str, mark: Mark | None) -> None:
        super().__init__(flat)
        self.flat, self.mark = flat, mark


@dataclass(frozen=True, slots=True)
class FlatWeight:
    """A flat weight as a rank has it: the weights that lie in it, the ranks that hold ranges of it, and the size of those.

    `total` is how many elements the ranks hold; the last ones hold fewer than `size`, or none, where these are not as many for
    each. `alike` are the ranks that hold the same range.
    """

    named: Named
    size: int
    rank: int
    places: Mapping[tuple[int, int], Laid]
    total: int
    alike: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        """Return its name."""
        return self.named.name

    @property
    def laid(self) -> tuple[Laid, ...]:
        """Return the weights that lie in it, in order."""
        return self.named.flat

    @property
    def group(self) -> tuple[int, ...]:
        """Return the ranks that hold ranges of it, in order."""
        return self.named.group

    @property
    def place(self) -> int:
        """Return the place of the rank among them."""
        return self.group.index(self.rank)

    @property
    def filled(self) -> tuple[int, int]:
        """Return the range that the rank gathers, with what it is filled up by."""
        return self.place * self.size, (self.place + 1) * self.size

    @property
    def held(self) -> tuple[int, int]:
        """Return the range that the rank holds."""
        low, high = (min(end, self.total) for end in self.filled)
        return low, high

    @property
    def counts(self) -> tuple[int, ...]:
        """Return how many elements each rank of the group holds."""
        return tuple(max(0, min(self.size, self.total - place * self.size)) for place in range(len(self.group)))


@dataclass(slots=True)
class View:
    """The values of the weights in a flat one."""

    flat: FlatWeight
    values: Mapping[str, str]

    def nodes(self, program: Program, laid: Laid, node: Apply, cast: Apply | None) -> list[Node]:
        """Return what reads a weight, cast where the range is, in place of an operator that reads its range."""
        source, found = self.values[laid.name], list[Node]()
        if cast is not None:
            made = program.fresh(program.types[cast.outputs[0]].of_shape(laid.shape))
            found.append(replace(cast, arguments={**cast.arguments, "self": Ref(source)}, outputs=(made,)))
            source = made
        shape = program.shape(node.outputs[0])
        return [*found, Apply("view", {"self": Ref(source), "size": shape}, node.outputs, node.mark)]


class FlatGradient:
    """The gradients of a program's flat weights while they are taken apart."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.makers = {name: node for node in program.nodes for name in makes(node)}
        self.made: dict[tuple[str, int, int], str] = {}
        self.behind: dict[int, list[Node]] = {}
        self.taken: dict[int, Exchange] = {}
        self.starts: dict[int, list[int]] = {}
        self.last: list[Apply] = []

    def of(self, value: str, laid: Laid, flat: FlatWeight) -> str:
        """Return the whole gradient of a weight, of whose flat weight's gradient a rank has the range `value`."""
        low, high = laid.at, laid.at + prod(laid.shape)
        whole = self._part(value, low, high) if len(flat.group) == 1 else self._whole(value, low, high, flat)
        return self._viewed(whole, laid.shape)

    def of_nothing(self, here: Program, peer: Program, value: str, laid: Laid, flat: FlatWeight) -> str:
        """Return the whole gradient of a weight of which the rank holds nothing, as a peer makes what is `value` there.

        Nothing of the program of the rank names it: it takes part in the collectives of the peer alone, with its addend. `here`
        is the program as it was, with all collectives.
        """
        makers = {name: node for node in peer.nodes for name in makes(node)}

        @cache
        def made(name: str) -> str:
            node = makers.get(name)
            if isinstance(node, Exchange) and node.kind == "reduce-scatter":
                place = next(at for at, other in enumerate(issued(peer, node.group)) if other is node)
                met = issued(here, node.group)[place : place + 1]
                if met and met[0].kind == node.kind:
                    whole = self._whole(met[0].outputs[0], laid.at, laid.at + prod(laid.shape), flat)
                    return self._viewed(whole, laid.shape)
            elif isinstance(node, Apply) and node.op in ("view", "narrow"):
                return made(reads(node)[0])
            elif isinstance(node, Apply) and _is_in_pieces(node):
                result = self.program.fresh(Type(laid.shape, peer.types[name].dtype))
                self.last.append(_reading(node, {source: made(source) for source in reads(node)}, result))
                return result
            raise NotFlatError(flat.name, node.mark if node is not None else None)

        return made(value)

    def _whole(self, value: str, low: int, high: int, flat: FlatWeight) -> str:
        """Return the elements of a flat gradient from `low` to `high`, of which `value` is the rank's range."""
        node = self.makers.get(value)
        key = value, -1 - low, high
        if key in self.made:
            return self.made[key]
        if self._scatters(node, flat) and isinstance(node, Exchange):
            part = self._part(node.inputs[0], low, high)
            made = self._exchanged(replace(node, kind="all-reduce", dim=None), node, part)
        elif isinstance(node, Apply) and self._is_elementwise(node):
            sources = {name: self._whole(name, low, high, flat) for name in reads(node)}
            made = self._applied(node, sources)
        elif isinstance(node, Exchange) and self._is_over_replicas(node, flat):
            made = self._exchanged(node, node, self._whole(node.inputs[0], low, high, flat))
        elif isinstance(node, Apply) and (node.op == "view" or self._leaves_filling(node, flat)):
            made = self._whole(reads(node)[0], low, high, flat)
        else:
            raise NotFlatError(flat.name, node.mark if node is not None else None)
        self.made[key] = made
        return made

    def _scatters(self, node: Node | None, flat: FlatWeight) -> bool:
        """Return whether a collective leaves each rank its range of a flat gradient."""
        if not isinstance(node, Exchange) or node.kind != "reduce-scatter" or node.group != flat.group or node.dim != 0:
            return False
        return self._count(node.inputs[0]) == flat.size * len(flat.group) and self._count(node.outputs[0]) == flat.size

    def _is_over_replicas(self, node: Exchange, flat: FlatWeight) -> bool:
        """Return whether a collective reduces what ranks have that hold the same range; a sum over others is of no weight."""
        return node.kind == "all-reduce" and len(node.inputs) == 1 and flat.alike.issuperset(node.group)

    def _leaves_filling(self, node: Apply, flat: FlatWeight) -> bool:
        """Return whether an operator reads what the rank holds, without what it is filled up by."""
        low, high = flat.held
        starts = node.op == "narrow" and (node.arguments.get("dim"), node.arguments.get("start")) == (0, 0)
        return starts and self._count(node.outputs[0]) == high - low

    def _part(self, value: str, low: int, high: int) -> str:
        """Return the elements of a value from `low` to `high`, counted in row-major order."""
        key, node = (value, low, high), self.makers.get(value)
        if (low, high) == (0, self._count(value)):
            return value
        if key not in self.made:
            self.made[key] = self._part_of(value, node, low, high) or self._narrowed(value, low, high)
        return self.made[key]

    def _part_of(self, value: str, node: Node | None, low: int, high: int) -> str | None:
        """Return a part as one of what a value is made of; None where it is made in another way, or of several parts."""
        if isinstance(node, Exchange) and node.kind == "all-reduce" and len(node.inputs) == 1:
            return self._exchanged(node, node, self._part(node.inputs[0], low, high))
        if not isinstance(node, Apply):
            return None
        source = node.arguments.get("self")
        if node.op == "view" and isinstance(source, Ref):
            return self._part(source.name, low, high)
        if node.op == "narrow" and node.arguments.get("dim") == 0 and isinstance(source, Ref):
            start, row = node.arguments["start"], self._count(source.name) // max(1, self.program.shape(source.name)[0])
            assert isinstance(start, int)
            return self._part(source.name, start * row + low, start * row + high)
        if node.op in ("cat", "aten.cat.default") and node.arguments.get("dim", 0) == 0 and reads(node):
            starts = self._starts(node)
            place = bisect_right(starts, low) - 1
            name, at = reads(node)[place], starts[place]
            if high <= at + self._count(name):
                return self._part(name, low - at, high - at)
        pads = node.op == "aten.constant_pad_nd.default" and _is_behind(node.arguments.get("pad"), self.program.shape(value))
        if pads and isinstance(source, Ref) and high <= self._count(source.name):
            return self._part(source.name, low, high)
        if self._is_elementwise(node):
            return self._applied(node, {name: self._part(name, low, high) for name in reads(node)})
        return None

    def _starts(self, node: Apply) -> list[int]:
        """Return where what is joined begins in what it is joined to."""
        if id(node) not in self.starts:
            self.starts[id(node)] = [*accumulate(map(self._count, reads(node)[:-1]), initial=0)]
        return self.starts[id(node)]

    def _is_elementwise(self, node: Apply) -> bool:
        """Return whether each element of a result is made of those in its place in what is read, which are all of its shape."""
        alike = all(self.program.shape(name) == self.program.shape(node.outputs[0]) for name in reads(node))
        return _is_in_pieces(node) and len(node.outputs) == 1 and alike

    def _applied(self, node: Apply, sources: Mapping[str, str]) -> str:
        """Return what an operator makes of parts of what it reads."""
        shape = self.program.shape(next(iter(sources.values())))
        shaped = {name: self._viewed(part, shape) for name, part in sources.items()}
        made = self.program.fresh(self.program.types[node.outputs[0]].of_shape(shape))
        self._put_behind(node, _reading(node, shaped, made))
        return made

    def _exchanged(self, wanted: Exchange, node: Exchange, part: str) -> str:
        """Return what a collective makes of a part of what it is given."""
        handle = node.handle and f"{node.handle}/{len(self.behind.get(id(node), ()))}"
        made = self.program.fresh(self.program.types[node.outputs[0]].of_shape(self.program.shape(part)))
        self._put_behind(node, replace(wanted, inputs=(part,), outputs=(made,), handle=handle))
        self.taken[id(node)] = node
        return made

    def _narrowed(self, value: str, low: int, high: int) -> str:
        source = self._viewed(value, (self._count(value),))
        made = self.program.fresh(self.program.types[value].of_shape((high - low,)))
        node = Apply("narrow", {"self": Ref(source), "dim": 0, "start": low, "length": high - low}, (made,), self._mark(value))
        self._put_behind(self.makers.get(value), node)
        return made

    def _viewed(self, value: str, shape: tuple[int, ...]) -> str:
        if self.program.shape(value) == shape:
            return value
        made = self.program.fresh(self.program.types[value].of_shape(shape))
        node = Apply("view", {"self": Ref(value), "size": shape}, (made,), self._mark(value))
        self._put_behind(self.makers.get(value), node)
        return made

    def _mark(self, value: str) -> Mark:
        node = self.makers.get(value)
        return node.mark if node is not None else Mark("backward")

    def _count(self, value: str) -> int:
        return prod(self.program.shape(value))

    def _put_behind(self, maker: Node | None, node: Node) -> None:
        """Put a node behind the one that makes what it reads, or behind what stands there already."""
        self.behind.setdefault(id(maker), []).append(node)
        for name in makes(node):
            self.makers.setdefault(name, node)

    def put(self) -> None:
        """Put what was made into the program, in place of the collectives that it stands for."""
        ends: dict[str, list[str]] = {}
        for taken in self.taken.values():
            stand_ins = [each.handle for each in self.behind[id(taken)] if isinstance(each, Exchange)]
            ends |= {taken.handle: stand_ins} if taken.handle else {}
        found: list[Node] = [*self._behind(None)]
        for node in self.program.nodes:
            if isinstance(node, End) and node.handle in ends:
                found += [End(handle, node.mark) for handle in ends[node.handle]]
                continue
            found += [] if id(node) in self.taken else [node]
            found += self._behind(node)
        end = next((at for at, node in enumerate(found) if node.mark.phase == "optimizer"), len(found))
        self.program.nodes[:] = [*found[:end], *self.last, *found[end:]]

    def _behind(self, node: Node | None) -> list[Node]:
        """Return what stands behind a node, and behind that."""
        return [inner for each in self.behind.get(id(node), ()) for inner in (each, *self._behind(each))]


def issued(program: Program, group: tuple[int, ...]) -> list[Exchange]:
    """Return the collectives of a group, in order."""
    return [node for node in program.nodes if isinstance(node, Exchange) and node.group == group]


def _is_in_pieces(node: Apply) -> bool:
    """Return whether an operator works on each element by itself."""
    base = base_of(node.op) if node.op.startswith("aten.") else ""
    return base in IN_PIECES or base == "_to_copy"


def _reading(node: Apply, sources: Mapping[str, str], made: str) -> Apply:
    """Return an operator on other values, by those that it reads."""
    arguments = {
        key: Ref(sources[argument.name]) if isinstance(argument, Ref) else argument for key, argument in node.arguments.items()
    }
    return Apply(node.op, arguments, (made,), node.mark)


def _is_behind(pad: object, shape: tuple[int, ...]) -> bool:
    """Return whether padding stands behind all of what is padded: behind its first dimension, and nowhere else."""
    if not isinstance(pad, tuple) or len(pad) != 2 * len(shape) or any(pad[:-1]):
        return False
    return isinstance(pad[-1], int) and pad[-1] >= 0
