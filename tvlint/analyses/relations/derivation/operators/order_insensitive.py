"""Decide whether the order of the pieces of a gathered dimension can matter.

A gather in another order than that of the pieces is a mistake by its structure where the order matters. It does not where all
that becomes of the result is computed element by element, without another operand, and then summed, averaged or compared over
that dimension. Addends that are gathered are added up so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tvlint.ir.operators import Compute, Literal, Operator, Send
from tvlint.ir.plan import Plan
from tvlint.ops.spec import Call, Family, Trait
from tvlint.ops.table import bound_in, spec_of

_CUTS = frozenset({Trait.RANGES, Trait.SELECTION})
"""Operators that take pieces of a dimension, which may be put together in the right order afterwards."""

Readers: TypeAlias = Mapping[str, Sequence["Operator | None"]]
"""The operators that read each tensor; None for a run that hands it on by another name."""


def readers_of(plan: Plan) -> Readers:
    """Return who reads what in the plan."""
    found: dict[str, list[Operator | None]] = {}
    for step in plan.steps():
        for inner, outer in zip(plan.segments[step.segment].outputs, step.outputs or (), strict=False):
            if inner != outer:
                found.setdefault(inner, [None])
    for operator in plan.operators():
        names = (operator.tensor,) if isinstance(operator, Send) else getattr(operator, "inputs", ())
        for name in names:
            if isinstance(name, str):
                found.setdefault(name, []).append(operator)
    return found


def order_may_not_matter(plan: Plan, readers: Readers, name: str, dim: int) -> bool:
    """Return whether everything that reads tensor `name`, and what is made of it, may be blind to the order along `dim`."""
    waiting, seen = [(name, dim)], {(name, dim)}
    while waiting:
        word, place = waiting.pop()
        if word in plan.outputs:
            return False
        for operator in readers.get(word, ()):
            made = _made(plan, operator, word, place)
            if made is None:
                return False
            waiting.extend(entry for entry in made if entry not in seen)
            seen.update(made)
    return True


def is_added_up(plan: Plan, readers: Readers, name: str, dim: int) -> bool:
    """Return whether all that reads tensor `name` adds or averages it along `dim`, at most after linear functions of each
    element; what nothing reads is not.
    """
    waiting, seen = [(name, dim)], {(name, dim)}
    while waiting:
        word, place = waiting.pop()
        if word in plan.outputs or not readers.get(word):
            return False
        for operator in readers[word]:
            bound = bound_in(operator, plan.tensors) if isinstance(operator, Compute) and not operator.in_place else None
            index = bound.operands[0][place] if bound is not None and place < len(bound.operands[0]) else ""
            if bound is None or not index or index in bound.whole or bound.linear != (frozenset({0}),):
                return False
            names = zip(operator.outputs, bound.outputs, strict=False) if isinstance(operator, Compute) else ()
            made = {(output, held.index(index)) for output, held in names if index in held} - seen
            seen |= made
            waiting += made
    return True


def _made(plan: Plan, operator: Operator | None, name: str, dim: int) -> list[tuple[str, int]] | None:
    """Return the results that hold the dimension in the same order, with its place; None where the order may matter."""
    if not isinstance(operator, Compute):
        return None
    spec, tensor = spec_of(operator.op), plan.tensors.get(name)
    tensors = operator.tensor_operands
    if spec is None or tensor is None or tensors != (name,):
        return None
    if spec.family is Family.IDENTITY:
        return [(output, dim) for output in operator.outputs]
    inputs = tuple(operand if isinstance(operand, Literal) else tensor.shape for operand in operator.inputs)
    outputs = tuple(plan.tensors[out].shape if out in plan.tensors else () for out in operator.outputs)
    bound = spec.bound(Call(operator.op, inputs, operator.attributes, outputs))
    if bound is None:
        return None
    index = bound.operands[0][dim] if dim < len(bound.operands[0]) else ""
    if index in bound.whole and spec.traits & _CUTS:
        return []
    if not index or (index in bound.whole and bound.splits.get(index) != "max") or spec.family is not Family.INDEXED:
        return None
    return [
        (output, names.index(index)) for output, names in zip(operator.outputs, bound.outputs, strict=False) if index in names
    ]
