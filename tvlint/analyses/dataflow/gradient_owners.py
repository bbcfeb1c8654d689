"""Whose gradients are on their way: those of weights, which ranks may average, and those of values made from data."""

from __future__ import annotations

from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.ir.operators import Backward, Communicate, Compute, Operator
from tvlint.ir.plan import Plan, Role


@dataclass(frozen=True, slots=True)
class Owners:
    """`of_weights` are gradients of weights and what is made from them; `of_data` those of other values that a backward
    takes further."""

    of_weights: frozenset[str]
    of_data: frozenset[str]


def owners(plan: Plan) -> Owners:
    """Return the gradients of the plan by what they are the gradients of."""
    operators = list(plan.operators())
    weights = _made_of_weights(plan, operators)
    of_weights: set[str] = set()
    of_data: set[str] = set()
    for name, tensor in plan.tensors.items():
        if tensor.gradient_of in weights:
            of_weights.add(name)
    taken = {name for operator in operators if isinstance(operator, Backward) for name in operator.inputs if name}
    for operator in operators:
        if isinstance(operator, Backward):
            operands = operator.forward.tensor_operands
            for gradient, owner in zip(operator.outputs, operands, strict=False):
                (of_weights if owner in weights else of_data).add(gradient)
    _spread(operators, of_weights)
    passed = {
        source for operator in operators if isinstance(operator, Communicate)
        for source, result in zip(operator.inputs, operator.outputs, strict=False) if result in taken
    }  # fmt: skip
    return Owners(frozenset(of_weights - {""}), frozenset((of_data & passed) - of_weights))


def _made_of_weights(plan: Plan, operators: list[Operator]) -> set[str]:
    """Return the weights, and what is made from them alone: gathered, cast or seen in another shape."""
    found = {name for name, tensor in plan.tensors.items() if tensor.role is Role.WEIGHT}
    for operator in operators:
        given = reads(operator)
        if isinstance(operator, Compute | Communicate) and given and found.issuperset(given):
            found.update(writes(operator))
    return found


def _spread(operators: list[Operator], found: set[str]) -> None:
    for operator in operators:
        if isinstance(operator, Compute | Communicate) and found.intersection(reads(operator)):
            found.update(writes(operator))
