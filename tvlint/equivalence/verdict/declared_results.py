"""Shapes and types that a plan declares of results, where their operators give them.

A pass that leaves operators out, or writes others in their place, takes with them what the proof would find of their results:
another shape or type than is declared. It asks here before.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.inference.shapes_and_gradients import implied_types
from tvlint.ir.operators import Communicate, Compute, Operator
from tvlint.ir.plan import Plan, Role
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.families.shaping import view_sizes
from tvlint.ops.spec import Call, Family, Shape, Trait, UnsupportedError
from tvlint.ops.table import bound_in, call_in, has_trait, spec_of

_SETTLES = (Trait.COMPARISON, Trait.CHOICE, Trait.CONVERSION)
"""The type of the result is that of no operand."""

_GIVEN = (Role.WEIGHT, Role.INPUT, Role.STATE, Role.BUFFER)


def has_declared_shapes(plan: Plan, operator: Compute) -> bool:
    """Return whether all results of an operator are known to have the shapes that the plan declares."""
    declared = tuple(plan.tensors[name].shape for name in operator.outputs if name in plan.tensors)
    return len(declared) == len(operator.outputs) and _shapes(plan, operator) == declared


def otherwise_declared(plan: Plan) -> str:
    """Return which result is declared to have another shape than its operator gives; empty where none is."""
    operators = plan.operators()
    for operator in (operator for operator in operators if isinstance(operator, Compute)):
        for name, shape in zip(operator.outputs, _shapes(plan, operator) or (), strict=False):
            declared = plan.tensors[name].shape if name in plan.tensors else shape
            if declared != shape and prod((*declared, *shape)) != 1:
                return f"`{name}` is made in shape {shape} and declared {declared}"
    return ""


def _shapes(plan: Plan, operator: Compute) -> tuple[Shape, ...] | None:
    """Return the shapes of the results; None where they are not known."""
    spec, call, bound = spec_of(operator.op), call_in(operator, plan.tensors), bound_in(operator, plan.tensors)
    if spec is None or call is None or bound is None:
        return None
    try:
        if spec.family is Family.RESHAPE:
            return (_viewed(call, call.shapes[0]),) if len(call.shapes) == 1 else None
        sizes = bound.sizes_of(operator.op, call.shapes)
        return tuple(tuple(sizes[name] for name in names) for names in bound.outputs)
    except (UnsupportedError, ValueError, LookupError):
        return None


def _viewed(call: Call, before: Shape) -> Shape:
    """Return the shape that a view gives. Raises UnsupportedError where it is not known."""
    asked = view_sizes(call, before)
    sizes = [size for size in asked if isinstance(size, int)] if isinstance(asked, tuple) else []
    fixed = prod(size for size in sizes if size != -1)
    if not isinstance(asked, tuple) or len(sizes) < len(asked) or sizes.count(-1) > 1 or (-1 in sizes and fixed < 1):
        raise UnsupportedError(f"`{call.op}` as {asked}")
    return tuple(prod(before) // fixed if size == -1 else size for size in sizes)


def have_declared_types(plan: Plan, names: Iterable[str]) -> bool:
    """Return whether these values, and what they are made of, hold whole numbers, flags or others as the plan declares.

    What is declared to hold whole numbers or flags is known to do so; of the rest nothing else is known.
    """
    makers: dict[str, list[Operator]] = {}
    for operator in plan.operators():
        for name in writes(operator):
            makers.setdefault(name, []).append(operator)
    waiting, seen = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in plan.tensors:
            continue
        seen.add(name)
        kind, tensor = _kind(plan.tensors[name].dtype), plan.tensors[name]
        if name not in makers and tensor.role not in _GIVEN and kind != _OTHER:
            return False
        for maker in makers.get(name, ()):
            if not isinstance(maker, Compute | Communicate):
                continue
            made = dict(zip(maker.outputs, implied_types(maker, plan.tensors, plan.mesh), strict=False))
            given = made[name][1] if name in made else ""
            if _kind(given) != kind:
                return False
            if isinstance(maker, Communicate) or not has_trait(maker.op, *_SETTLES):
                waiting += reads(maker)
            elif has_trait(maker.op, Trait.CONVERSION):
                waiting += [each for each in maker.inputs[1:] if isinstance(each, str)]
    return True


_FLAGS, _WHOLE, _OTHER = "flags", "whole numbers", "other numbers"


def _kind(dtype: str) -> str:
    if dtype == "bool":
        return _FLAGS
    return _WHOLE if holds_whole_numbers(dtype) else _OTHER
