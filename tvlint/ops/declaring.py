"""A plan as a project means it: the operators that it declares under the names that carry their declarations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvlint.ir.operators import Backward, Compute, Operator
from tvlint.ir.plan import Plan
from tvlint.ops.annotations.declared import PREFIX, Declared
from tvlint.ops.table import meant


def claims_declarations(plan: Plan) -> Compute | None:
    """Return an operator of a file with the name of a declared one, which only a configuration may give; None without one."""
    for operator in plan.operators():
        this_operator = operator.forward if isinstance(operator, Backward) else operator
        if isinstance(this_operator, Compute) and this_operator.op.startswith(PREFIX):
            return this_operator
    return None


def with_declared(plan: Plan, declared: Sequence[Declared]) -> Plan:
    """`plan` with the operators that `declared` is about under the names that carry it; shared operators stay shared."""
    if not declared:
        return plan
    known: dict[int, tuple[Compute, Compute]] = {}

    def forward(operator: Compute) -> Compute:
        held = known.get(id(operator))
        if held is None:
            name = meant(operator.op, declared)
            held = known[id(operator)] = (operator, operator if name == operator.op else replace(operator, op=name))
        return held[1]

    def changed(operator: Operator) -> Operator:
        if isinstance(operator, Compute):
            return forward(operator)
        if isinstance(operator, Backward):
            this_operator = forward(operator.forward)
            return operator if this_operator is operator.forward else replace(operator, forward=this_operator)
        return operator

    return replace(plan, segments=plan.with_operators(changed))
