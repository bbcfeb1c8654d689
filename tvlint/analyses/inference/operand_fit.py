"""What operators give by the shapes and types of their operands, and operands that no framework runs an operator on.

One walk over the operators of a plan, in which uses that are alike are looked up once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from tvlint.analyses.dataflow.attention import is_any_attention
from tvlint.analyses.dataflow.facts import Facts, once_per_plan
from tvlint.analyses.inference.shapes_and_gradients import result_types
from tvlint.ir.operators import (
    Backward,
    Collective,
    Communicate,
    Compute,
    Operator,
    ReduceGradients,
    Update,
)
from tvlint.ir.plan import Plan
from tvlint.ops.spec import DtypeError, MisfitError, Trait
from tvlint.ops.spelling import without_overload
from tvlint.ops.table import has_trait, spec_of
from tvlint.ops.usual_calls import is_copy
from tvlint.plurals import counted

_MOVES = (Collective.ALL_GATHER, Collective.ALL_TO_ALL, Collective.BROADCAST, Collective.GATHER, Collective.SCATTER)
"""Collectives that compute nothing."""

Types = tuple[tuple[tuple[int, ...], str], ...]


@dataclass(frozen=True, slots=True)
class Misfit:
    """At (`segment`, `index`) the operator does not take its operands, by their shapes or their types of numbers."""

    segment: str
    index: int
    why: MisfitError


@dataclass(frozen=True, slots=True)
class OperandFit:
    """What operators give, by their place, as far as it follows, and where operands do not fit."""

    given: Mapping[tuple[str, int], Types]
    misfits: tuple[Misfit, ...]


@once_per_plan
def operand_fit(facts: Facts) -> OperandFit:
    """Return what the operators of the plan give, and which do not take their operands."""
    plan = facts.plan
    numbers: dict[tuple[tuple[int, ...], str], int] = {}
    kinds = {name: numbers.setdefault((tensor.shape, tensor.dtype), len(numbers)) for name, tensor in plan.tensors.items()}
    given: dict[tuple[str, int], Types] = {}
    misfits: list[Misfit] = []
    seen: dict[object, Types | MisfitError] = {}
    scattered = _scattered(plan)
    for segment in plan.segments.values():
        for index, operator in enumerate(segment.operators):
            if isinstance(operator, Update):
                misfits += [Misfit(segment.name, index, why) for why in _other_pieces(plan, operator, scattered)]
                continue
            if isinstance(operator, Backward):
                differs = _other_shapes(plan, operator, kinds)
                if differs is not None:
                    misfits.append(Misfit(segment.name, index, differs))
                continue
            use = _use(operator, kinds)
            if use is None:
                continue
            found = seen.get(use)
            if found is None:
                found = seen[use] = _judged(plan, operator)
            if isinstance(found, MisfitError):
                misfits.append(Misfit(segment.name, index, found))
            elif found:
                given[segment.name, index] = found
    return OperandFit(given, tuple(misfits))


def _use(operator: Operator, kinds: Mapping[str, int]) -> object:
    """Return what uses that give the same have in common, the types of tensors by their numbers; None where nothing follows.

    Constants stand as they are written, since `True` equals 1.
    """
    if isinstance(operator, Compute):
        operands = tuple(
            [kinds.get(operand) if isinstance(operand, str) else repr(operand.value) for operand in operator.inputs]
        )
        if None in operands:
            return None
        return operator.op, operands, repr(operator.attributes) if operator.attributes else "", len(operator.outputs)
    if isinstance(operator, Communicate):
        operands = tuple([kinds.get(name) for name in operator.inputs])
        if None in operands:
            return None
        cut = (operator.dim, operator.concat_dim, operator.splits, operator.receive_splits)
        results = tuple([kinds.get(name) for name in operator.outputs])
        return operator.kind, operands, results, operator.group, cut, operator.dtype
    return None


def _judged(plan: Plan, operator: Operator) -> Types | MisfitError:
    """Return what the operator gives, or why it does not take its operands."""
    if not isinstance(operator, Compute | Communicate):
        return ()
    if isinstance(operator, Compute) and spec_of(operator.op) is None:
        return _values_of_other_keys(plan, operator) or _overwritten_with_others(plan, operator) or ()
    try:
        found = tuple(result_types(operator, plan.tensors, plan.mesh))
    except MisfitError as misfit:
        return misfit
    converts = _converts(plan, operator) if isinstance(operator, Communicate) else None
    if converts is not None:
        return converts
    if isinstance(operator, Compute) and has_trait(operator.op, Trait.APART) and 0 < len(found) < len(operator.outputs):
        return MisfitError("too few parts", f"it gives {len(found)} of {counted(len(operator.outputs), 'part')}")
    return found


def _converts(plan: Plan, operator: Communicate) -> DtypeError | None:
    """Return what does not fit where a collective that only moves numbers gives a tensor of another type than it takes."""
    for name, result in zip(operator.inputs, operator.outputs, strict=False) if operator.kind in _MOVES else ():
        if name in plan.tensors and result in plan.tensors and not operator.dtype:
            taken, given = plan.tensors[name].dtype, plan.tensors[result].dtype
            if taken and given and taken != given:
                return DtypeError(f"{taken} into {given}", f"`{result}` is of type {given}, and a collective converts nothing")
    return None


def _values_of_other_keys(plan: Plan, operator: Compute) -> MisfitError | None:
    """Return what does not fit where a kernel of which only the kind is known attends to keys without their values."""
    names = operator.tensor_operands[:3]
    shapes = [plan.tensors[name].shape for name in names]
    if not is_any_attention(operator) or len({len(shape) for shape in shapes}) > 1 or len(shapes[0]) < 3:
        return None
    _, keys, values = shapes
    if keys[:-1] == values[:-1]:
        return None
    return MisfitError(f"keys of shape {list(keys)}, values of {list(values)}", "each key has one value, in the same place")


def _overwritten_with_others(plan: Plan, operator: Compute) -> MisfitError | None:
    """Return what does not fit where a method puts what it makes element by element, or a copy, in the place of its operand."""
    if is_copy(operator):
        into, taken = (plan.tensors[name].shape if isinstance(name, str) else () for name in operator.inputs)
        fits = len(taken) <= len(into) and all(here in (1, there) for here, there in zip(taken[::-1], into[::-1], strict=False))
        return None if fits else MisfitError("a copy of another shape", f"the copy has to fit into shape {list(into)}")
    name, op = operator.inputs[0] if operator.inputs else "", without_overload(operator.op)
    if operator.in_place != (0,) or operator.outputs or not op.endswith("_") or not isinstance(name, str):
        return None
    if op.endswith("__") or not has_trait(op[:-1], Trait.SUM, Trait.SCALING) or name not in plan.tensors:
        return None
    try:
        found = result_types(replace(operator, op=op[:-1], outputs=("",), in_place=()), plan.tensors, plan.mesh)
    except MisfitError as misfit:
        return misfit
    shape, given = plan.tensors[name].shape, found[0][0] if found else plan.tensors[name].shape
    if shape == given:
        return None
    said = f"what is made of `{name}` of shape {list(shape)} is of shape {list(given)}"
    return MisfitError(said, f"it has to be of the same shape, to be put into `{name}`")


def _scattered(plan: Plan) -> frozenset[str]:
    """Return the weights whose gradients reducers scatter, so that the rank keeps a piece of each."""
    operators = plan.operators()
    reducers = (operator for operator in operators if isinstance(operator, ReduceGradients) and operator.scatter)
    return frozenset(name for reducer in reducers for name in reducer.weights)


def _other_pieces(plan: Plan, operator: Update, scattered: frozenset[str]) -> Iterator[MisfitError]:
    """Yield the weights that are updated with a gradient of more or fewer elements."""
    for name in operator.weights:
        weight = plan.tensors.get(name)
        gradient = plan.tensors.get(weight.gradient) if weight is not None and name not in scattered else None
        if weight is None or gradient is None or not weight.shape or prod(gradient.shape) in (1, prod(weight.shape)):
            continue
        said = f"`{gradient.name}` of shape {list(gradient.shape)} updates `{name}`"
        yield MisfitError(said, f"it has to be of the same shape, {list(weight.shape)}")


def _other_shapes(plan: Plan, operator: Backward, kinds: Mapping[str, int]) -> MisfitError | None:
    """Return which gradient has another shape than the value that it is the gradient of, if one has."""
    operands = operator.forward.tensor_operands
    for gradients, values in ((operator.inputs, operator.forward.outputs), (operator.outputs, operands)):
        for gradient, of in zip(gradients, values, strict=False):
            if kinds.get(gradient) == kinds.get(of) or gradient not in kinds or of not in kinds:
                continue
            gradient_shape, shape = plan.tensors[gradient].shape, plan.tensors[of].shape
            if gradient_shape != shape and prod((*gradient_shape, *shape)) != 1:
                said = f"`{gradient}` of shape {list(gradient_shape)} is the gradient of `{of}`"
                return MisfitError(said, f"it has to be of the same shape, {list(shape)}")
    return None
