"""Rounding of whole numbers by collectives."""

from __future__ import annotations

from collections.abc import Iterable

from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import Communicate
from tvlint.ir.plan import Plan
from tvlint.ops.families.elementwise import holds_whole_numbers


def sent_as_other_numbers(plan: Plan, operator: Communicate) -> str:
    """Return how a collective rounds what it moves, by sending it as whole numbers; empty where it does not."""
    tensor = plan.tensors.get(operator.inputs[0]) if operator.inputs else None
    if tensor is None or not holds_whole_numbers(operator.dtype) or tensor.dtype == operator.dtype:
        return ""
    return f"communicates {tensor.dtype} as {operator.dtype}"


def rounds_an_average(plan: Plan, operator: Communicate, given: Iterable[Value]) -> bool:
    """Return whether a collective may divide whole numbers that are not the same on all members, so that a rest is lost."""
    types = [plan.tensors[name].dtype for name in operator.inputs if name in plan.tensors]
    whole = any(not dtype or holds_whole_numbers(dtype) for dtype in types)
    return operator.reduce == "avg" and whole and any(value.leaves for value in given)
