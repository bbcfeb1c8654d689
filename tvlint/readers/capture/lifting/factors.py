"""Dimensions as products of factors, so that a view of merged dimensions is no operator.

Dimensions that operators relate are the same; a view says that products of dimensions are equal, and splits them until they
agree. What cannot be split stays a view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import takewhile
from math import prod

from tvlint.ir.operators import Literal
from tvlint.ops.spec import ONE, Family
from tvlint.ops.spec import Call as TableCall
from tvlint.ops.table import spec_of
from tvlint.plurals import counted
from tvlint.readers.capture.lifting.lift import Call, GradientOf, Lifted, LiftedNode
from tvlint.readers.capture.lifting.program import Exchange, Ref, Type

_ROUNDS = 3


class Factors:
    """The dimensions of all values of one rank, each split into factors."""

    def __init__(self, lifted: Lifted) -> None:
        self.types = lifted.program.types
        self.sizes: list[int] = []
        self.same: dict[int, int] = {}
        self.split: dict[int, tuple[int, int]] = {}
        self.dims: dict[str, list[int]] = {}
        self.lists: dict[int, list[int]] = {}
        self.units: set[int] = set()
        self.first: dict[str, str] = {}
        self.made: dict[tuple[object, ...], str] = {}
        for _ in range(_ROUNDS):
            for node in lifted.nodes:
                self._relate(node)

    def of(self, name: str) -> list[int]:
        """Return the dimensions of a value."""
        if name not in self.dims:
            self.dims[name] = [self._new(size) for size in self.types[name].shape]
        return self.dims[name]

    def flat(self, dims: Iterable[int]) -> list[int]:
        """Return the factors of dimensions in order, of those of size 1 only the units."""
        return [leaf for dim in dims for leaf in self._leaves(dim) if self.sizes[leaf] != 1 or leaf in self.units]

    def shape(self, dims: Iterable[int]) -> tuple[int, ...]:
        """Return the sizes of the factors of dimensions."""
        return tuple(self.sizes[leaf] for leaf in self.flat(dims))

    def unit(self) -> int:
        """Return a new factor of size 1 that counts as one."""
        made = self._new(1)
        self.units.add(made)
        return made

    def outermost_units(self, dim: int) -> list[int]:
        """Return the units that the factors of a dimension begin with."""
        return list(takewhile(self.units.__contains__, self.flat([dim])))

    def listed(self, factors: list[int], size: int) -> int:
        """Return a new dimension that consists of these factors."""
        made = self._new(size)
        self.lists[made] = factors
        return made

    def _new(self, size: int) -> int:
        self.sizes.append(size)
        return len(self.sizes) - 1

    def _find(self, dim: int) -> int:
        root = dim
        while root in self.same:
            root = self.same[root]
        while dim != root:
            self.same[dim], dim = root, self.same[dim]
        return root

    def _leaves(self, dim: int) -> list[int]:
        if dim in self.lists:
            return self.lists[dim]
        dim = self._find(dim)
        if dim not in self.split:
            return [dim]
        return [leaf for part in self.split[dim] for leaf in self._leaves(part)]

    def _cut(self, leaf: int, outer: int) -> None:
        self.split[leaf] = self._new(outer), self._new(self.sizes[leaf] // outer)

    def equate(self, one: Iterable[int], other: Iterable[int]) -> bool:
        """Let two products of dimensions be the same; return whether they can be."""
        left, right = self.flat(one), self.flat(other)
        if prod(self.sizes[dim] for dim in left) != prod(self.sizes[dim] for dim in right):
            return False
        while left and right:
            here, there = self._find(left[0]), self._find(right[0])
            if here in self.split or there in self.split:
                left[:1] = self._leaves(here)
                right[:1] = self._leaves(there)
            elif here == there or self.sizes[here] == self.sizes[there]:
                if here != there:
                    self.same[here] = there
                left.pop(0)
                right.pop(0)
            else:
                large, small = (here, there) if self.sizes[here] > self.sizes[there] else (there, here)
                if self.sizes[large] % self.sizes[small]:
                    return False
                self._cut(large, self.sizes[small])
        return not left and not right

    def divide(self, name: str, shape: Iterable[int]) -> None:
        """Let a value consist of dimensions of these sizes."""
        self.equate(self.of(name), [self._new(size) for size in shape])

    def _alike(self, one: str, other: str) -> None:
        if one and other and self.types[one].shape == self.types[other].shape:
            for here, there in zip(self.of(one), self.of(other), strict=True):
                self.equate([here], [there])

    def _relate(self, node: LiftedNode) -> None:
        if isinstance(node, GradientOf):
            tensors = [argument.name for argument in node.forward.inputs if isinstance(argument, Ref)]
            for gradient, value in (
                *zip(node.inputs, node.forward.outputs, strict=False),
                *zip(node.outputs, tensors, strict=False),
            ):
                self._alike(gradient, value)
        elif isinstance(node, Exchange):
            self._exchanged(node)
        elif isinstance(node, Call):
            self._called(node)

    def _exchanged(self, node: Exchange) -> None:
        for value, result in zip(node.inputs, node.outputs, strict=False):
            for at, (here, there) in enumerate(zip(self.of(value), self.of(result), strict=False)):
                if at not in (node.dim, node.joined):
                    self.equate([here], [there])
        if node.kind == "all-gather":  # weights in shards are gathered anew for their gradients
            self._made_again(node.outputs[0], (node.kind, *map(self._first, node.inputs), node.group, node.dim))

    def _first(self, name: str) -> str:
        return self.first.get(name, name)

    def _made_again(self, name: str, key: tuple[object, ...]) -> None:
        """Let a value consist of the same dimensions as the first that was made like it."""
        self.first[name] = self.made.setdefault(key, name)
        self._alike(name, self.first[name])

    def _called(self, call: Call) -> None:
        operands = [argument.name for argument in call.inputs if isinstance(argument, Ref)]
        spec = spec_of(call.op)
        if spec is None or not operands:
            return
        if len(operands) == len(call.inputs) == 1:
            self._made_again(call.outputs[0], (call.op, self._first(operands[0]), *call.attributes.items()))
        if spec.family is Family.RESHAPE:
            self.equate(self.of(operands[0]), self.of(call.outputs[0]))
            return
        bound = spec.bound(table_call(call, self.types[call.outputs[0]].shape, {n: self.types[n].shape for n in operands}))
        if bound is None:
            return
        known: dict[str, int] = {}
        tensors = zip((*bound.operands, *bound.outputs), (*operands, *call.outputs), strict=False)
        for names, value in tensors:
            for name, dim in zip(names, self.of(value), strict=False):
                if name != ONE and self.sizes[dim] == self.sizes[known.setdefault(name, dim)]:
                    self.equate([known[name]], [dim])


def table_call(call: Call, result: tuple[int, ...], shapes: dict[str, tuple[int, ...]]) -> TableCall:
    """Return a call as the operator table reads it."""
    inputs = tuple(argument if isinstance(argument, Literal) else shapes[argument.name] for argument in call.inputs)
    return TableCall(call.op, inputs, call.attributes, (result,))


def misfit(call: Call, types: Mapping[str, Type]) -> str:
    """Return why the results of a call have not the shapes that were recorded; empty where nothing speaks against them."""
    spec = spec_of(call.op)
    if spec is None:
        return ""
    operands = [types[argument.name].shape for argument in call.inputs if isinstance(argument, Ref)]
    results = [types[name].shape for name in call.outputs]
    if not results:
        return "" if spec.family is Family.INERT else f"`{call.op}` gives no result"
    if spec.family is Family.RESHAPE:
        fits = len(results) == len(operands) == 1 and prod(results[0]) == prod(operands[0])
        return "" if fits else f"`{call.op}` gives no tensor of shape {results[0]}"
    shapes = {argument.name: types[argument.name].shape for argument in call.inputs if isinstance(argument, Ref)}
    bound = spec.bound(table_call(call, results[0], shapes))
    if bound is None:
        return ""
    if len(bound.outputs) < len(results):
        return f"`{call.op}` gives {len(bound.outputs)} of {counted(len(results), 'result')}"
    sizes = {ONE: 1, **bound.sizes}
    for names, shape in zip(bound.operands, operands, strict=False):
        sizes |= dict(zip(names, shape, strict=False))
    for names, shape in zip(bound.outputs, results, strict=False):
        known = tuple(sizes.get(name, size) for name, size in zip(names, shape, strict=False))
        is_one = prod(shape) == prod(sizes.get(name, 1) for name in names) == 1
        if not is_one and (len(names) != len(shape) or known != shape):
            return f"`{call.op}` gives no tensor of shape {shape}"
    return ""


def is_of_the_table(call: Call, types: Mapping[str, Type]) -> bool:
    """Return whether the operator table says what a call does of such operands; of views only their name counts.

    A tensor of one element without dimensions is taken for one of one dimension, too, as torch takes it.
    """
    spec = spec_of(call.op)
    if spec is None or not call.outputs or spec.family is Family.RESHAPE:
        return spec is not None
    shapes = {argument.name: types[argument.name].shape for argument in call.inputs if isinstance(argument, Ref)}
    lined = {name: shape or (1,) for name, shape in shapes.items()}
    result = types[call.outputs[0]].shape
    return any(spec.bound(table_call(call, result, each)) is not None for each in (shapes, lined))


def is_elementwise(call: Call, types: Mapping[str, Type]) -> bool:
    """Return whether each element of the result depends on the elements in its place alone, by the operator table."""
    spec = spec_of(call.op)
    values = [argument.name for argument in call.inputs if isinstance(argument, Ref)]
    if spec is None or not values or len(call.outputs) != 1:
        return False
    bound = spec.bound(table_call(call, types[call.outputs[0]].shape, {name: types[name].shape for name in values}))
    if bound is None:
        return False
    if len(bound.outputs) != 1 or bound.whole or bound.reduced or bound.averaged or bound.indices or bound.draws or bound.sizes:
        return False
    (result,) = bound.outputs
    return ONE not in result and all(_is_broadcast(operand, result) for operand in bound.operands)


def _is_broadcast(operand: tuple[str, ...], result: tuple[str, ...]) -> bool:
    """Return whether the names of an operand are the last ones of the result, but for dimensions of size 1."""
    tail = result[len(result) - len(operand) :] if operand else ()
    return len(tail) == len(operand) and all(here in (ONE, there) for here, there in zip(operand, tail, strict=True))
