"""Gradients that are taken for those of another tensor of the same operator, or stored as those of another weight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import of_kinds
from tvlint.analyses.placement.state import gradient_owners
from tvlint.ir.operators import Backward, Literal
from tvlint.ir.plan import Plan, Role
from tvlint.ops.table import spec_of


@dataclass(frozen=True, slots=True)
class Misused:
    """At (`segment`, `index`) the gradient `gradient` of `owner` is used (or `stored`) for `tensor`."""

    gradient: str
    owner: str
    tensor: str
    stored: bool
    segment: str
    index: int
    ranks: tuple[int, ...]


def misused_gradients(plan: Plan) -> Iterator[Misused]:
    """Gradients of one operand that are used for another, once per operator.

    A gradient may be used for what its tensor was made from without a change, as a residual or an all-reduce. Two operands
    of one operator are no such pair, unless their gradients are equal as those of a sum.
    """
    declared = gradient_owners(plan)
    seen: set[tuple[str, int]] = set()
    for program in plan.programs:
        made: dict[str, tuple[str, frozenset[str]]] = {}
        for name in dict.fromkeys(step.segment for step in program.steps if step.segment in plan.segments):
            for index, operator in of_kinds(plan.segments[name].operators, {Backward}):
                if not isinstance(operator, Backward):
                    continue
                given = [] if _adds(operator) else _given(operator)
                for found in (*_stored(plan, operator, given, declared), *_used(operator, made)):
                    if (name, index) not in seen:
                        seen.add((name, index))
                        yield Misused(*found, name, index, program.ranks)
                _note(given, made)


def _operands(operator: Backward) -> list[str]:
    return [operand for operand in operator.forward.inputs if not isinstance(operand, Literal)]


def _adds(operator: Backward) -> bool:
    """Return whether the gradients of the operands are one and the same."""
    spec = spec_of(operator.forward.op)
    return spec is not None and spec.name == "add"


def _given(operator: Backward) -> list[tuple[str, str]]:
    """The gradients that the operator gives, each with the operand at whose place it stands."""
    return [pair for pair in zip(operator.outputs, _operands(operator), strict=False) if pair[0]]


def _stored(
    plan: Plan, operator: Backward, given: list[tuple[str, str]], declared: dict[str, str]
) -> Iterator[tuple[str, str, str, bool]]:
    """Gradients that stand at the place of another operand than the one whose gradient they are called."""
    for gradient, operand in given:
        owner = declared.get(gradient, "")
        if not owner or owner == operand:
            continue
        operands = _operands(operator)
        one, other = plan.tensors.get(owner), plan.tensors.get(operand)
        if one is None or other is None:
            continue
        weights = one.role is Role.WEIGHT is other.role
        tied = (one.logical or owner) == (other.logical or operand) or (one.storage and one.storage == other.storage)
        if (weights and not tied) or (owner in operands and operands.count(operand) == 1):
            yield gradient, owner, operand, True


def _note(given: list[tuple[str, str]], made: dict[str, tuple[str, frozenset[str]]]) -> None:
    """Notes whose gradients an operator gives, and of which other operands it gives them too."""
    operands = frozenset(operand for _, operand in given)
    for gradient, operand in given:
        if gradient in made and made[gradient][0] != operand:
            made[gradient] = ("", frozenset())
        else:
            made[gradient] = (operand, operands)


def _used(operator: Backward, made: dict[str, tuple[str, frozenset[str]]]) -> Iterator[tuple[str, str, str, bool]]:
    """Gradients with which the backward of another operand of the same operator starts."""
    for gradient, result in zip(operator.inputs, operator.forward.outputs, strict=False):
        owner, siblings = made.get(gradient, ("", frozenset()))
        if owner and owner != result and result in siblings:
            yield gradient, owner, result, False
