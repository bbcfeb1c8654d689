"""What plans make of tensors of indices, element by element, and what they look up with it, in the rows that a rank holds.

It is made by sums with constants, comparisons, flags, choices by flags, bounds, and of one number throughout. A sum takes each
operand as often as 1, 0 or -1. So it is linear on pieces, with slopes that are whole numbers, and these pieces end between the
sum of all constants and its negative.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tvlint.analyses.dataflow.def_use import reads, stream_of, writes
from tvlint.ir.operators import Compute, Literal
from tvlint.ir.plan import Plan, Segment
from tvlint.ops.field import Array
from tvlint.ops.spec import Call, Family, Trait, UnsupportedError
from tvlint.ops.table import LOOKUP, PICK, has_trait, spec_of
from tvlint.replay.operators import forward

MOST = 1 << 22
"""What has larger constants is not decided."""

_MOST_OPERATORS = 32
"""What makes an index or a mask of more operators is not looked at, nor are more views of what is looked up."""


def made_once(segment: Segment) -> dict[str, Compute]:
    """Return what makes each name that one operator makes, of what was there before it and is the same later."""
    times = Counter(name for each_operator in segment.operators for name in writes(each_operator))
    made: dict[str, Compute] = {}
    there: set[str] = set()
    for operator in segment.operators:
        early = any(times[name] > 1 or (times[name] and name not in there) for name in reads(operator))
        there.update(writes(operator))
        if isinstance(operator, Compute) and not early and not stream_of(operator):
            made.update((name, operator) for name in operator.outputs if name and times[name] == 1)
    return made


@dataclass(frozen=True, slots=True)
class Lookups:
    """Where lookups are looked for: a plan, and what makes each name of a segment."""

    plan: Plan
    made: Mapping[str, Compute]

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the local shape of a tensor, as far as the plan has it."""
        tensor = self.plan.tensors.get(name)
        return tensor.shape if tensor is not None else None

    def chain(self, name: str) -> tuple[Compute, ...]:
        """Return the lookup that `name` is, and the views of it in between."""
        found: list[Compute] = []
        while (operator := self.made.get(name)) is not None and len(operator.outputs) == 1 and len(found) < _MOST_OPERATORS:
            spec = spec_of(operator.op)
            found.insert(0, operator)
            if spec is None or spec.name in (LOOKUP, PICK):
                return tuple(found) if spec is not None else ()
            first = operator.inputs[0] if operator.inputs else None
            if not is_view(operator) or not isinstance(first, str):
                return ()
            name = first
        return ()

    def made_of(self, name: str) -> OfIndices | None:
        """Return how `name` is made, element by element, of one tensor of indices; None where it is not, or by too many."""
        order: list[tuple[Compute, tuple[str, ...]]] = []
        sources: set[str] = set()
        stack, seen, done = [(name, False)], set[str](), set[str]()
        while stack:
            word, below_is_done = stack.pop()
            below = self._operands(word)
            if below_is_done:
                done.add(word)
                order.append((self.made[word], tuple(below or ())))
            elif word in seen:
                if word not in done:
                    return None  # it is made of itself
            elif below is None:
                sources.add(word)
                seen.add(word)
                done.add(word)
            else:
                seen.add(word)
                stack.append((word, True))
                stack.extend((each_name, False) for each_name in below)
            if len(seen) > _MOST_OPERATORS:
                return None
        return OfIndices(sources.pop(), tuple(order)) if len(sources) == 1 else None

    def filled(self, operator: Compute) -> dict[int, float]:
        """Return the numbers of which operands of an operator are made throughout, by position."""
        makers = {place: self.made.get(name) for place, name in enumerate(operator.inputs) if isinstance(name, str)}
        numbers = {place: _number(maker) for place, maker in makers.items() if maker is not None}
        return {place: number for place, number in numbers.items() if number is not None}

    def _operands(self, name: str) -> tuple[str, ...] | None:
        """Return what `name` is made of, one element of each; None where it is not made so, and stands for itself."""
        operator = self.made.get(name)
        if operator is None or len(operator.outputs) != 1:
            return None
        names = operator.tensor_operands
        shapes = [self.shape(each_name) for each_name in (*names, name)]
        if not names or any(shape is None for shape in shapes):
            return () if _number(operator) is not None else None
        if is_view(operator):
            before, after = (shape or () for shape in shapes[-2:])
            return names if prod(before) == prod(after) and _without_last(before) == _without_last(after) else None
        if len(set(shapes)) > 1 or not has_trait(operator.op, *_BY_ELEMENT):
            return None
        return names


@dataclass(frozen=True, slots=True)
class OfIndices:
    """Whole numbers or flags that operators make, in this order and of these tensors, of one tensor of indices."""

    source: str
    order: tuple[tuple[Compute, tuple[str, ...]], ...]

    def end(self) -> int:
        """Return the sum of the magnitudes of all constants, each as often as what it is added to is used.

        Raises UnsupportedError where a sum multiplies an operand.
        """
        ends = {self.source: 0}
        for operator, below in self.order:
            total = int(min(MOST, _constants(operator, len(below)))) + 1 + sum(ends[name] for name in below)
            ends[operator.outputs[0]] = min(total, 2 * MOST)
        return ends[self.order[-1][0].outputs[0]] if self.order else 0

    def values(self, every: Array) -> Array:
        """Return what is made of each of these indices."""
        import numpy as np

        found = {self.source: every}
        for operator, below in self.order:
            operands = [found[name] for name in below]
            found[operator.outputs[0]] = _value(operator, operands) if below else np.full(every.shape, _number(operator))
        return found[self.order[-1][0].outputs[0]] if self.order else every


def _constants(operator: Compute, count: int) -> float:
    """Return the sum of the magnitudes of the constants of an operator of `count` tensors: of a sum, what it makes of zeros.

    Raises UnsupportedError for a sum that multiplies an operand with anything but 1, 0 and -1.
    """
    import numpy as np

    if not has_trait(operator.op, Trait.SUM):
        given = [operand.value for operand in operator.inputs if isinstance(operand, Literal)] + [*operator.attributes.values()]
        return sum(abs(each) for each in given if isinstance(each, int | float) and not isinstance(each, bool))
    at_zero, *at_ones = (
        float(forward(operator, [np.full((1,), float(place == one)) for place in range(count)], [(1,)])[0][0])
        for one in range(-1, count)
    )
    if any(abs(at_one - at_zero) not in (0, 1) for at_one in at_ones):
        raise UnsupportedError(f"`{operator.op}` multiplies an operand")
    return abs(at_zero)


def _number(operator: Compute) -> float | None:
    """Return the one number that an operator makes of nothing; None where it makes something else."""
    spec = spec_of(operator.op)
    if spec is None or operator.tensor_operands or Trait.FILLED not in spec.traits:
        return None
    given = tuple(operand for operand in operator.inputs if isinstance(operand, Literal))
    try:
        number = spec.bind(Call(operator.op, given, operator.attributes)).attributes[0]
    except UnsupportedError:
        return None
    return float(number) if isinstance(number, int | float) else None


def _value(operator: Compute, operands: list[Array]) -> Array:
    """Return what an operator by element makes; UnsupportedError where that need not be linear on pieces."""
    import numpy as np

    if is_view(operator):
        return operands[0]
    flags = [bool(np.all((operand == 0) | (operand == 1))) for operand in operands]
    if has_trait(operator.op, Trait.SCALING) and not (
        has_trait(operator.op, Trait.PRODUCT) and len(operands) == 2 and any(flags)
    ):
        raise UnsupportedError(f"`{operator.op}` of whole numbers")
    if has_trait(operator.op, Trait.CONVERSION):
        if not flags[0]:
            raise UnsupportedError(f"`{operator.op}` of whole numbers")
        return operands[0]
    return forward(operator, operands, [operands[0].shape])[0]


_BY_ELEMENT = (Trait.SUM, Trait.COMPARISON, Trait.MASKING, Trait.SCALING, Trait.CONVERSION, Trait.BOUNDED, Trait.LIKE)


def is_view(operator: Compute) -> bool:
    """Return whether the operator gives its operand in another shape."""
    spec = spec_of(operator.op)
    if spec is None or Trait.TRANSPOSE in spec.traits:
        return False
    return spec.family is Family.RESHAPE or Trait.VIEW in spec.traits


def _without_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[:-1] if shape[-1:] == (1,) else shape


def factor_of(last: Compute, place: int, flags: Array, filled: Mapping[int, float]) -> Array | None:
    """Return what `last` multiplies its operand `place` with, by flags, where others are `filled` with numbers; None where it
    is not linear in that.
    """
    import numpy as np

    spec = spec_of(last.op)
    if spec is None or not has_trait(last.op, Trait.MASKING, Trait.SCALING):
        return None
    tensors = [at for at, operand in enumerate(last.inputs) if not isinstance(operand, Literal)]
    given = tuple(operand if isinstance(operand, Literal) else flags.shape for operand in last.inputs)
    bound = spec.bind(Call(last.op, given, last.attributes, (flags.shape,)))
    left_out = {tensors.index(place), *(tensors.index(at) for at, number in filled.items() if number == 0)}
    if not any(tensors.index(place) in each and each <= left_out for each in bound.linear):
        return None
    numbers = {at: np.full(flags.shape, number) for at, number in ({place: 1.0} | {**filled}).items()}
    return forward(last, [numbers.get(at, flags) for at in tensors], [flags.shape])[0]
