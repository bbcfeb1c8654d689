"""Dimensions of which a rank holds one index, as one head of several.

On the rank such a dimension has size 1: views drop it and put it anywhere, and what is no product of heads there is one of all
heads in the reference. The reference says which factors of weights and inputs they are; they are followed from there as factors
of size 1. Where one is put wrongly the plan computes the same numbers, and is not proved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tvlint.ops.spec import ONE, Family, Trait
from tvlint.ops.table import has_trait, spec_of
from tvlint.readers.capture.lifting.factors import Factors, is_of_the_table, table_call
from tvlint.readers.capture.lifting.lift import Call, GradientOf, Lifted, LiftedNode, inputs_of
from tvlint.readers.capture.lifting.program import Exchange, Message, Ref

Units: TypeAlias = Mapping[str, Mapping[int, tuple[tuple[int, int], ...]]]
"""The units that are the outermost factors of dimensions, by value and dimension, each with the number of parts into which the
factors behind it are cut.
"""


def units_of(whole: Iterable[tuple[int, int]], parts: int) -> tuple[tuple[int, int], ...]:
    """Return those of the factors of a whole dimension, with their sizes, of which each of so many parts has one index.

    With each comes into how many parts the factors behind it are cut, which may be a factor that is none of them.
    """
    found: list[tuple[int, int]] = []
    for factor, size in whole:
        if parts == 1:
            break
        if parts % size:
            return tuple(found) if size % parts == 0 else ()
        parts //= size
        found.append((factor, parts))
    return tuple(found) if parts == 1 else ()


@dataclass(frozen=True, slots=True)
class Holding:
    """The program of a rank, the units of what it is given, and which of that are weights."""

    factors: Factors
    lifted: Lifted
    units: Units
    weights: frozenset[str]


def with_units(holdings: Sequence[Holding]) -> None:
    """Add units to the factors of all values that they are factors of; those of weights are not summed over.

    What a rank receives has the units of what its peer sends.
    """
    meetings = _meetings(holdings)
    received: list[dict[str, dict[int, tuple[int, int]]]] = [{} for _ in holdings]
    followed: dict[int, _Followed] = {}
    pending = [rank for rank, holding in enumerate(holdings) if holding.units]
    while pending:
        rank = pending.pop(0)
        followed[rank] = _followed(holdings[rank], received[rank])
        for sent, other, value in meetings.get(rank, ()):
            places = followed[rank].places.get(sent, {})
            if not places.keys() <= received[other].get(value, {}).keys():
                received[other][value] = {**places, **received[other].get(value, {})}
                pending += [other] if other not in pending else []
    for each_followed in followed.values():
        each_followed.add()


def _meetings(holdings: Sequence[Holding]) -> dict[int, list[tuple[str, int, str]]]:
    """Return by rank the values that it sends, each with the rank that receives it, and as which value."""
    waiting: dict[tuple[int, int, int], list[str]] = {}
    for rank, holding in enumerate(holdings):
        for node in holding.lifted.nodes:
            if isinstance(node, Message) and not node.sends:
                waiting.setdefault((node.peer, rank, node.tag), []).append(node.value)
    found: dict[int, list[tuple[str, int, str]]] = {}
    for rank, holding in enumerate(holdings):
        arriving = {key: iter(values) for key, values in waiting.items() if key[0] == rank}
        for node in holding.lifted.nodes:
            if not isinstance(node, Message) or not node.sends:
                continue
            value = next(arriving.get((rank, node.peer, node.tag), iter(())), None)
            if value is not None:
                found.setdefault(rank, []).append((node.value, node.peer, value))
    return found


def _followed(holding: Holding, received: Mapping[str, Mapping[int, tuple[int, int]]]) -> _Followed:
    """Return where the units are in the values of a rank."""
    followed = _Followed(holding.factors, holding.lifted)
    held = holding.units
    followed.kept.update(name for value in holding.weights for names in held.get(value, {}).values() for name, _ in names)
    for value, dims in held.items():
        for dim, names in dims.items():
            for name, parts in names:
                followed.put(value, dim, 0, name)
                followed.parts[value, name] = parts
    for value, units in received.items():
        for unit, (dim, place) in units.items():
            followed.put(value, dim, place, unit)
    for node in holding.lifted.nodes:
        followed.follow(node)
    return followed


class _Followed:
    """The units of values: in which dimension each is, and before which of its factors."""

    def __init__(self, factors: Factors, lifted: Lifted) -> None:
        self.factors = factors
        self.types = factors.types
        self.operations = lifted.program.operations
        self.calls = {name: node for node in lifted.nodes if isinstance(node, Call) for name in node.outputs}
        self.places: dict[str, dict[int, tuple[int, int]]] = {}
        self.kept: set[int] = set()
        self.parts: dict[tuple[str, int], int] = {}

    def put(self, value: str, dim: int, place: int, unit: int) -> None:
        """Put a unit into a dimension of a value, unless the value has it."""
        self.places.setdefault(value, {}).setdefault(unit, (dim, place))

    def add(self) -> None:
        """Let the dimensions of values have their units as factors."""
        leaves: dict[int, int] = {}
        for value, units in self.places.items():
            dims = [self.factors.flat([dim]) for dim in self.factors.of(value)]
            for unit, (dim, place) in sorted(units.items(), key=lambda item: item[1][1], reverse=True):
                if unit not in leaves:
                    leaves[unit] = self.factors.unit()
                dims[dim].insert(place, leaves[unit])
            sizes = self.types[value].shape
            self.factors.dims[value] = [self.factors.listed(dim, size) for dim, size in zip(dims, sizes, strict=True)]

    def follow(self, node: LiftedNode) -> None:
        """Follow the units of what a node reads to what it makes."""
        if isinstance(node, GradientOf):
            tensors = [argument.name for argument in node.forward.inputs if isinstance(argument, Ref)]
            for gradient, value in zip(node.outputs, tensors, strict=False):
                if gradient and self.types[gradient].shape == self.types[value].shape:
                    self._copy(value, gradient)
        elif isinstance(node, Exchange):
            for value, result in zip(node.inputs, node.outputs, strict=False):
                self._exchanged(node, value, result)
        elif isinstance(node, Call) and has_trait(node.op, Trait.CONTRACTION) and has_trait(node.op, Trait.PRODUCT):
            self._multiplied(node)
        elif isinstance(node, Call) and node.op == "torch.Tensor.view":
            self._viewed(inputs_of(node)[0], node.outputs[0])
        elif isinstance(node, Call) and node.op == "torch.permute":
            self._permuted(node)
        elif isinstance(node, Call) and inputs_of(node):
            self._called(node)

    def _copy(self, value: str, result: str) -> None:
        for unit, (dim, place) in self.places.get(value, {}).items():
            if dim < len(self.types[result].shape):
                self.put(result, dim, place, unit)

    def _exchanged(self, node: Exchange, value: str, result: str) -> None:
        """Follow the units of what ranks exchange; along the dimension that is gathered where the parts are behind it."""
        for unit, (dim, place) in self.places.get(value, {}).items():
            parts, count = self.parts.get((value, unit), 1), len(node.group) if dim == node.dim else 1
            is_kept = dim != node.dim or (node.kind == "all-gather" and parts % count == 0)
            if is_kept and dim < len(self.types[result].shape):
                self.put(result, dim, place, unit)
                self.parts[result, unit] = parts // count

    def _permuted(self, node: Call) -> None:
        dims = node.attributes["dims"]
        assert isinstance(dims, tuple)
        for unit, (dim, place) in self.places.get(inputs_of(node)[0], {}).items():
            self.put(node.outputs[0], dims.index(dim), place, unit)

    def _viewed(self, value: str, result: str) -> None:
        """Put units where the result has a dimension of size 1, else between the same factors."""
        dims = self.factors.of(value), self.factors.of(result)
        if self.factors.flat(dims[0]) != self.factors.flat(dims[1]):
            return
        here, there = ([self.factors.flat([dim]) for dim in each_dim] for each_dim in dims)
        free = [dim for dim, size in enumerate(self.types[result].shape) if size == 1]
        for unit, (dim, place) in sorted(self.places.get(value, {}).items(), key=lambda item: item[1]):
            if free:
                self.put(result, free.pop(0), 0, unit)
                continue
            at = sum(map(len, here[:dim])) + place
            ends = [sum(map(len, there[: place + 1])) for place in range(len(there))]
            alone = self.types[value].shape[dim] == 1
            found = next((place for place, end in enumerate(ends) if at < end or (alone and at == end and at)), len(ends) - 1)
            self.put(result, found, at - (ends[found] - len(there[found])), unit)

    def _multiplied(self, node: Call) -> None:
        """Follow the units of matrices.

        One that both have in the inner dimension is summed over, or one of the batch; so is one that one of them has there and
        the other elsewhere. One that only one of them has belongs to its outer dimension.
        """
        if len(inputs_of(node)) != 2 or not is_of_the_table(node, self.types):
            return
        batch = "B" * (len(self.factors.of(node.outputs[0])) - 2)
        left, right, result = (batch + names for names in ("MK", "KN", "MN"))
        here, there = (
            {unit: (names[dim], place) for unit, (dim, place) in self.places.get(value, {}).items()}
            for names, value in zip((left, right), inputs_of(node), strict=True)
        )
        last = len(self.factors.flat([self.factors.of(node.outputs[0])[0]]))
        for unit in {**here, **there}:
            roles = [side[unit] for side in (here, there) if unit in side]
            names = {name for name, _ in roles}
            outer = next((role for role in roles if role[0] in "MN"), None)
            if names == {"K"} and len(roles) == 1:
                self.put(node.outputs[0], result.index("M" if unit in here else "N"), 0, unit)
            elif outer is not None and "K" not in names:
                self.put(node.outputs[0], result.index(outer[0]), outer[1], unit)
            elif "B" in result:
                self.put(node.outputs[0], 0, min([place for role, place in roles if role == "B"], default=last), unit)

    def _called(self, node: Call) -> None:
        """Follow units along the dimensions that an operator has in common with its results.

        A sum over a merged dimension, as of the gradient of a bias, is one for each index that a unit of a weight stands for;
        units of data alone, as samples, are summed over, and so are those that the operand does not have whose gradient it is.
        """
        operands, spec = inputs_of(node), spec_of(node.op)
        if spec is None or spec.family is Family.RESHAPE:
            return
        shapes = {name: self.types[name].shape for name in operands}
        bound = spec.bound(table_call(node, self.types[node.outputs[0]].shape, shapes))
        if bound is None:
            return
        resizes = has_trait(node.op, Trait.RANGES, Trait.JOIN, Trait.BROADCAST)  # the result has the outermost units as well
        for result, made in zip(node.outputs, bound.outputs, strict=False):
            shape = self.types[result].shape
            for value, names in zip(operands, bound.operands, strict=False):
                for unit, (dim, place) in self.places.get(value, {}).items():
                    at = len(shape) - len(names) + dim
                    same = [number for number, name in enumerate(made) if name == names[dim] and name != ONE]
                    is_single = 0 <= at < len(shape) and shape[at] == self.types[value].shape[dim] == 1
                    is_kept = node.op != "torch.sum" or (unit in self.kept and not self._is_summed_over(node, unit))
                    if not is_kept:
                        is_single = False
                    if not same and (is_single or (resizes and not place)):
                        same = [at]
                    if not same and node.op == "torch.sum" and shape and is_kept:
                        same, place = [len(shape) - 1], 0
                    for number in same[:1]:
                        self.put(result, number, place, unit)

    def _is_summed_over(self, node: Call, unit: int) -> bool:
        """Return whether a sum is the gradient of the operand of an operator, by its shape, and that has not the unit."""
        forward = self.calls.get(self.operations.get(node.mark.of, ""))
        if node.mark.phase != "backward" or forward is None:
            return False
        wide = _without_ones(self.types[node.outputs[0]].shape)
        like_it = [name for name in inputs_of(forward) if _without_ones(self.types[name].shape) == wide]
        others = [name for name in inputs_of(forward) if name not in like_it]
        has_it = [unit in self.places.get(name, {}) for name in like_it]
        return bool(like_it) and not any(has_it) and any(unit in self.places.get(name, {}) for name in others)


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)
