"""Pieces that are gathered along another dimension than they are split in, and put into order by views and cuts after that.

A gather or an exchange that stacks pieces is no mistake where what follows it only moves elements until each result is a box of
the whole value again, or of the value that it is a view of. That is decided on the indices themselves: the elements of a value
of the same shape are numbered, and moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from tvlint.analyses.dataflow.def_use import uses
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.ir.operators import Backward, Communicate, Compute, Literal, Operator
from tvlint.ir.plan import Box, Plan, Segment
from tvlint.ops.field import Floats
from tvlint.ops.spec import Call, Family, Trait, UnsupportedError
from tvlint.ops.table import has_trait, spec_of

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Part: TypeAlias = tuple[int, Box]
"""A box of a term."""

_MOVES = (Trait.VIEW, Trait.APART, Trait.RANGES, Trait.JOIN, Trait.SELECTION, Trait.DETACHED, Trait.CONVERSION)
MOST_ELEMENTS = 1 << 22


class UndecidedError(Exception):
    """The value is too large to number its elements."""


@dataclass(slots=True)
class _Moved:
    plan: Plan
    forms: Mapping[int, Array]
    held: dict[str, Array] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    boxes: dict[tuple[int, str], Part] = field(default_factory=dict)
    in_order: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    """What is a box, or made of one that is moved."""

    def hold(self, operator: Operator, name: str, array: Array, follows: bool = False) -> None:
        import numpy as np

        self.held[name] = array
        if follows:
            self.in_order.add(name)
            self.known.add(name)
        if any(array.size == whole.size and np.array_equal(array.ravel(), whole.ravel()) for whole in self.forms.values()):
            self.in_order.add(name)
        boxes = ((term, _box_of(array, whole)) for term, whole in self.forms.items())
        found = next(((term, box) for term, box in boxes if box is not None), None)
        if found is not None:
            self.in_order.add(name)
            self.known.add(name)
            self.boxes[id(operator), name] = found


def numbered(terms: Terms, term: int) -> Mapping[int, Array]:
    """Return the numbers of the elements of a term, and of each value on the way to it by views and transposes.

    Raises UndecidedError.
    """
    import numpy as np

    chain = [term]
    while len(terms.operands[chain[-1]]) == 1 and _order(terms, chain[-1]) is not None:
        chain += terms.operands[chain[-1]]
    if prod(terms.shape[term]) > MOST_ELEMENTS:
        raise UndecidedError
    array = np.arange(prod(terms.shape[term])).reshape(terms.shape[chain[-1]])
    found = {chain[-1]: array}
    for each in reversed(chain[:-1]):
        array = array.transpose(_order(terms, each) or range(array.ndim)).reshape(terms.shape[each])
        found[each] = array
    return found


def _order(terms: Terms, term: int) -> tuple[int, ...] | None:
    """Return in which order a term has the dimensions of its operand, none for a view; None where it has other elements."""
    head, operand = terms.keys[term], terms.operands[term][0]
    if len(head) == 2 and has_trait(str(head[0]), Trait.VIEW) and prod(terms.shape[operand]) == prod(terms.shape[term]):
        return ()
    if len(head) != 5 or not has_trait(str(head[0]), Trait.TRANSPOSE):
        return None
    before, after = head[3][:2]
    return tuple(before.index(dim) for dim in after) if sorted(before) == sorted(after) else None


def put_in_order(
    plan: Plan, segment: Segment, gather: Communicate, forms: Mapping[int, Array], given: Array
) -> Mapping[tuple[int, str], Part] | None:
    """Return the boxes of values that operators after a gather or an exchange give, which itself gives elements of these
    numbers, by their identity and their results; `forms` are the values with the numbers of their elements.

    None where something else reads what is not in order.
    """
    at = next(index for index, operator in enumerate(segment.operators) if operator is gather)
    behind = segment.operators[at + 1 :]
    moved = _Moved(plan, forms)
    moved.hold(gather, gather.outputs[0], given)
    if not all(_follow(moved, operator) for operator in behind):
        return None
    elsewhere = (each for each in plan.segments.values() if each is not segment)
    others = {name for each in elsewhere for operator in each.operators for name in uses(operator)}
    ends = moved.held.keys() - moved.read | (moved.held.keys() & (others | set(plan.outputs)))
    return moved.boxes if moved.in_order and ends <= moved.in_order else None


def are_moved(segment: Segment, gather: Communicate) -> bool:
    """Return whether operators after a gather or an exchange move the elements of its result."""
    at = next(index for index, operator in enumerate(segment.operators) if operator is gather)
    moves = (each for each in segment.operators[at + 1 :] if isinstance(each, Compute) and _moves(each))
    return any(not set(gather.outputs).isdisjoint(each.inputs) for each in moves)


def _follow(moved: _Moved, operator: Operator) -> bool:
    """Follow one operator; return whether it reads only what is in order, or only moves elements."""
    taken = [] if isinstance(operator, Backward) else [name for name in uses(operator) if name in moved.held]
    moved.read.update(taken)
    if not isinstance(operator, Compute):
        return moved.in_order.issuperset(taken)
    names = operator.tensor_operands
    results = _results(moved, operator, names) if taken and moved.held.keys() >= set(names) else None
    follows = len(names) == 1 and names[0] in moved.known
    for name in operator.outputs:
        moved.held.pop(name, None)
        moved.in_order.discard(name)
        moved.known.discard(name)
    if results is None:
        return moved.in_order.issuperset(taken)
    for name, array in zip(operator.outputs, results, strict=False):
        if name:
            moved.hold(operator, name, array, follows)
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


def _box_of(array: Array, whole: Array) -> Box | None:
    """Return the box of a numbered value that the array is; None where it is none."""
    import numpy as np

    if array.ndim != whole.ndim or not array.size:
        return None
    first = np.unravel_index(int(np.flatnonzero(whole.ravel() == array.flat[0])[0]), whole.shape)
    box = tuple((int(low), int(low) + size) for low, size in zip(first, array.shape, strict=True))
    if any(high > size for (_, high), size in zip(box, whole.shape, strict=True)):
        return None
    return box if np.array_equal(whole[tuple(slice(low, high) for low, high in box)], array) else None
