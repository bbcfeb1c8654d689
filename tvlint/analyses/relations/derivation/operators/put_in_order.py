"""Pieces that are gathered along another dimension than they are split in, and put into order by views and cuts after that.

A gather that stacks pieces is no mistake where what follows it only moves elements until each result is a box of the whole
value again. That is decided on the indices themselves: the elements of a value of the same shape are numbered, and moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from tvlint.analyses.dataflow.def_use import uses
from tvlint.ir.operators import Backward, Communicate, Compute, Literal, Operator
from tvlint.ir.plan import Box, Plan, Segment
from tvlint.ops.field import Floats
from tvlint.ops.spec import Call, Family, Trait, UnsupportedError
from tvlint.ops.table import has_trait, spec_of

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_MOVES = (Trait.VIEW, Trait.APART, Trait.RANGES, Trait.JOIN, Trait.SELECTION, Trait.DETACHED, Trait.CONVERSION)
_MOST_ELEMENTS = 1 << 22


class UndecidedError(Exception):
    """The value is too large to number its elements."""


@dataclass(slots=True)
class _Moved:
    plan: Plan
    whole: tuple[int, ...]
    held: dict[str, Array] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    boxes: dict[tuple[int, str], Box] = field(default_factory=dict)
    in_order: set[str] = field(default_factory=set)

    def hold(self, operator: Operator, name: str, array: Array) -> None:
        import numpy as np

        self.held[name] = array
        if array.size == prod(self.whole) and np.array_equal(array.ravel(), np.arange(array.size)):
            self.in_order.add(name)
        box = _box_of(array, self.whole)
        if box is not None:
            self.in_order.add(name)
            self.boxes[id(operator), name] = box


def put_in_order(
    plan: Plan, segment: Segment, gather: Communicate, whole: tuple[int, ...], pieces: Sequence[Box], dim: int
) -> Mapping[tuple[int, str], Box] | None:
    """Return the boxes of a value that operators after a gather of its pieces give, by their identity and their results.

    None where something else reads what is not in order. Raises UndecidedError.
    """
    import numpy as np

    at = next(index for index, operator in enumerate(segment.operators) if operator is gather)
    names, behind = set(gather.outputs), segment.operators[at + 1 :]
    if not any(isinstance(each, Compute) and _moves(each) and not names.isdisjoint(each.inputs) for each in behind):
        return None
    if prod(whole) > _MOST_ELEMENTS:
        raise UndecidedError
    numbered = np.arange(prod(whole)).reshape(whole)
    cut = [numbered[tuple(slice(low, high) for low, high in box)] for box in pieces]
    moved = _Moved(plan, whole)
    moved.hold(gather, gather.outputs[0], np.concatenate(cut, axis=dim))
    if not all(_follow(moved, operator) for operator in behind):
        return None
    elsewhere = (each for each in plan.segments.values() if each is not segment)
    others = {name for each in elsewhere for operator in each.operators for name in uses(operator)}
    ends = moved.held.keys() - moved.read | (moved.held.keys() & (others | set(plan.outputs)))
    return moved.boxes if moved.in_order and ends <= moved.in_order else None


def _follow(moved: _Moved, operator: Operator) -> bool:
    """Follow one operator; return whether it reads only what is in order, or only moves elements."""
    taken = [] if isinstance(operator, Backward) else [name for name in uses(operator) if name in moved.held]
    moved.read.update(taken)
    if not isinstance(operator, Compute):
        return moved.in_order.issuperset(taken)
    names = operator.tensor_operands
    results = _results(moved, operator, names) if taken and moved.held.keys() >= set(names) else None
    for name in operator.outputs:
        moved.held.pop(name, None)
        moved.in_order.discard(name)
    if results is None:
        return moved.in_order.issuperset(taken)
    for name, array in zip(operator.outputs, results, strict=False):
        if name:
            moved.hold(operator, name, array)
    return True


def _moves(operator: Compute) -> bool:
    return has_trait(operator.op, *_MOVES) and not operator.in_place


def _results(moved: _Moved, operator: Compute, names: Sequence[str]) -> Sequence[Array] | None:
    """Return the numbers of the elements that an operator moves; None where it does something else, or that is not known."""
    spec, arrays = spec_of(operator.op), [moved.held[name] for name in names]
    if spec is None or not _moves(operator):
        return None
    if has_trait(operator.op, Trait.CONVERSION):
        return arrays[:1]
    shapes = iter(arrays)
    inputs = tuple(each if isinstance(each, Literal) else next(shapes).shape for each in operator.inputs)
    tensors = [moved.plan.tensors.get(name) for name in operator.outputs]
    outputs = tuple(tensor.shape for tensor in tensors if tensor is not None)
    if spec.family is Family.RESHAPE:
        return [arrays[0].reshape(shape) for shape in outputs if prod(shape) == arrays[0].size]
    try:
        bound = spec.bind(Call(operator.op, inputs, operator.attributes, outputs if len(outputs) == len(tensors) else ()))
        return None if spec.evaluate is None else spec.evaluate(bound, arrays, Floats())
    except UnsupportedError:
        return None


def _box_of(array: Array, whole: tuple[int, ...]) -> Box | None:
    """Return the box of a numbered value that the array is; None where it is none."""
    import numpy as np

    if array.ndim != len(whole) or not array.size:
        return None
    first = [int(index) for index in np.unravel_index(int(array.flat[0]), whole)]
    box = tuple((low, low + size) for low, size in zip(first, array.shape, strict=True))
    if any(high > size for (_, high), size in zip(box, whole, strict=True)):
        return None
    numbered = np.arange(prod(whole)).reshape(whole)[tuple(slice(low, high) for low, high in box)]
    return box if np.array_equal(numbered, array) else None
