"""Shapes and types that a plan declares of results, where their operators give them.

A pass that leaves operators out, or writes others in their place, takes with them what the proof would find of their results:
another shape or type than is declared. It asks here before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from math import prod
from typing import TypeAlias

from tvlint.analyses.dataflow.def_use import writes
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, Receive, Send
from tvlint.ir.plan import Plan
from tvlint.ops.families.shaping import viewed_shape
from tvlint.ops.kinds import Kind, kind_of, kinds_given
from tvlint.ops.spec import Family, Shape, UnsupportedError
from tvlint.ops.table import bound_in, call_in, spec_of


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
            return (viewed_shape(call, call.shapes[0]),) if len(call.shapes) == 1 else None
        sizes = bound.sizes_of(operator.op, call.shapes)
        return tuple(tuple(sizes[name] for name in names) for names in bound.outputs)
    except (UnsupportedError, ValueError, LookupError):
        return None


Kinds: TypeAlias = Mapping[str, Kind | None]
"""What tensors hold, by their names; None where it is not known."""


def have_declared_types(plan: Plan, names: Iterable[str]) -> bool:
    """Return whether these values hold whole numbers, flags or real numbers as the plan declares."""
    kinds = kinds_in(plan)
    held = {name: Kind.WHOLE if kinds.get(name) is Kind.COUNTS else kinds.get(name) for name in names}
    return all(name in plan.tensors and kind is kind_of(plan.tensors[name].dtype) for name, kind in held.items())


def kinds_in(plan: Plan) -> Kinds:
    """Return what the tensors of a plan hold, by the operators that make them, back to what is given."""
    found = {name: kind_of(tensor.dtype) for name, tensor in plan.tensors.items()}
    sent = {operator.tensor for operator in plan.operators_of(Send)}
    for _ in range(_SWEEPS):
        made: dict[str, Kind | None] = {}
        before = dict(found)
        for operator in plan.operators():
            if isinstance(operator, Receive):
                kinds = [_received(plan, operator.tensor, sent, found)]
            else:
                kinds = [*_kinds_of_results(plan, operator, found)]
            for name, kind in zip(writes(operator), kinds, strict=False):
                made[name] = found[name] = kind if made.get(name, kind) is kind else None
        if found == before:
            return found
    return {**found, **dict.fromkeys(made)}


_SWEEPS = 8
"""So often operators are asked in the order in which they stand, which need not be that in which they run."""


def _received(plan: Plan, name: str, sent: Set[str], found: Kinds) -> Kind | None:
    """Return what a tensor holds that is received: what is sent by its name, else by any; None where none fits its type."""
    kinds = {found.get(each) for each in (sent & {name} or sent)}
    tensor = plan.tensors.get(name)
    declared = None if tensor is None else kind_of(tensor.dtype)
    fitting = {kind for kind in kinds if declared is None or kind is declared or {kind, declared} == {Kind.COUNTS, Kind.WHOLE}}
    return fitting.pop() if len(fitting) == 1 else None


def _kinds_of_results(plan: Plan, operator: Operator, found: Kinds) -> Sequence[Kind | None]:
    if isinstance(operator, Communicate):
        return [found.get(name) for name in operator.inputs]
    if not isinstance(operator, Compute):
        return [Kind.REAL if isinstance(operator, Backward) else found.get(name) for name in writes(operator)]
    made = kinds_given(operator, plan.tensors, [found.get(name) for name in operator.tensor_operands])
    return [found.get(name) for name in operator.outputs] if made is None else made
