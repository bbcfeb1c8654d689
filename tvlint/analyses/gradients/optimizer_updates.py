"""Weights that an optimizer step changes, and weights that only get gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import overwritten, reads, uses, writes
from tvlint.analyses.dataflow.facts import Facts, once_per_plan
from tvlint.analyses.gradients.lifecycle import owners_of_gradients
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, Receive, ReduceGradients, Update
from tvlint.ir.plan import Plan, Role
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_kind


def is_step(operator: Compute) -> bool:
    """Return whether the operator is an optimizer step."""
    return has_kind(operator.op, Trait.OPTIMIZER)


def updated_weights(plan: Plan) -> frozenset[str]:
    """Return the weights that a step of the plan changes, by an update, a written-out step or in place."""
    found: set[str] = set()
    weights = {name for name, tensor in plan.tensors.items() if tensor.role is Role.WEIGHT}
    run = {step.segment for step in plan.steps()}
    for name in run & plan.segments.keys():
        for operator in plan.segments[name].operators:
            if isinstance(operator, Update):
                found.update(operator.weights)
            elif isinstance(operator, Compute):
                if operator.in_place:
                    found.update(overwritten(operator))
                found.update(weights.intersection(operator.outputs))
                if is_step(operator):
                    found.update(operator.tensor_operands)
    storages = {plan.tensors[name].storage for name in found if name in plan.tensors} - {""}
    found.update(name for name, tensor in plan.tensors.items() if tensor.storage in storages)
    return frozenset(found & plan.tensors.keys())


def put_in_place(plan: Plan) -> frozenset[str]:
    """Return the weights that a step changes, or that ranks get from others, as a gather of stepped shards gives them."""
    sent = {name for each in plan.operators() if isinstance(each, Communicate | Receive) for name in writes(each)}
    return updated_weights(plan) | (sent & plan.tensors.keys())


@once_per_plan
def weights_updated(facts: Facts) -> frozenset[str]:
    """Return what `updated_weights` does of the plan."""
    return updated_weights(facts.plan)


@dataclass(frozen=True, slots=True)
class WithoutGradient:
    """The operator at (`segment`, `index`) uses the gradient of `weight`, which nothing makes."""

    weight: str
    segment: str
    index: int


def without_gradients(facts: Facts) -> Iterator[WithoutGradient]:
    """Yield the weights that are reduced or updated and never get a gradient, though backward gives others one or goes through
    what reads them, each once.
    """
    plan, owners, made = facts.plan, owners_of_gradients(facts), set[str]()
    run = [name for name in dict.fromkeys(step.segment for step in plan.steps()) if name in plan.segments]
    operators = [(name, index, each) for name in run for index, each in enumerate(plan.segments[name].operators)]
    for _, _, operator in operators:
        if isinstance(operator, Backward | Communicate | Compute):
            made.update(owners[name] for name in writes(operator) if name in owners)
    given = {plan.tensors[weight].logical or weight for weight in made}
    given |= {plan.tensors[weight].storage for weight in made} - {""}
    reached = _reached([operator for _, _, operator in operators], plan)
    seen = set[str]()
    for segment, index, operator in operators:
        stepped = operator.weights if isinstance(operator, Update) else ()
        used = operator.weights if isinstance(operator, ReduceGradients) else (owners.get(name, "") for name in reads(operator))
        for weight in (*(stepped if made else reached.intersection(stepped)), *reached.intersection(used)):
            tensor = plan.tensors.get(weight)
            if tensor is None or weight in made | seen or not given.isdisjoint({tensor.logical or weight, tensor.storage}):
                continue
            if tensor.role is Role.WEIGHT and tensor.requires_grad and tensor.gradient not in plan.tensors:
                seen.add(weight)
                yield WithoutGradient(weight, segment, index)


def _reached(operators: list[Operator], plan: Plan) -> set[str]:
    """Return the weights that get no gradient from operators whose results have gradients, or through which backward goes."""
    backward = [operator for operator in operators if isinstance(operator, Backward)]
    given = {of for each in backward for of, name in zip(each.forward.tensor_operands, each.outputs, strict=False) if name}
    results = given.union(*(operator.forward.outputs for operator in backward))
    forward = [operator for operator in operators if isinstance(operator, Compute)] if backward else []
    used = {name for operator in forward if not results.isdisjoint(operator.outputs) for name in operator.tensor_operands}
    return {name for name in used - given if plan.has_role(name, Role.WEIGHT)}


@dataclass(frozen=True, slots=True)
class FrozenStep:
    """The operator at (`segment`, `index`) steps `weight`, which is declared to be frozen."""

    weight: str
    segment: str
    index: int
    ranks: tuple[int, ...]


def frozen_steps(facts: Facts) -> Iterator[FrozenStep]:
    """Yield the first step of each weight that is declared to be frozen.

    What overwrites one that gets no gradient is no step: a teacher may be the moving average of a student.
    """
    plan = facts.plan
    stepped = {name for name in weights_updated(facts) if plan.tensors[name].role is Role.WEIGHT}
    frozen = {name for name in stepped if plan.tensors[name].requires_grad is False}
    owners = owners_of_gradients(facts) if frozen else {}
    operators = list(plan.operators()) if frozen else []
    given = {owners[name] for operator in operators for name in writes(operator) if name in owners}
    for program in plan.programs if frozen else ():
        for name, index, operator in plan.run_by(program):
            changed = set(operator.weights) if isinstance(operator, Update) else {*writes(operator), *overwritten(operator)}
            is_sure = isinstance(operator, Update) or (isinstance(operator, Compute) and is_step(operator))
            for weight in sorted(frozen & changed if is_sure else frozen & changed & given):
                frozen.discard(weight)
                yield FrozenStep(weight, name, index, program.ranks)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """`weight` gets a gradient at (`segment`, `index`) and no step, though `other` has one."""

    weight: str
    other: str
    segment: str
    index: int
    ranks: tuple[int, ...]


def _changed_with_gradients(plan: Plan) -> set[str]:
    """Return the weights that operators overwrite with what is made of gradients, whatever these are gradients of."""
    made, changed = set[str](), set[str]()
    for operator in plan.operators():
        if isinstance(operator, Backward) or not made.isdisjoint(uses(operator)):
            results = {*writes(operator), *overwritten(operator)}
            changed |= {name for name in results if not isinstance(operator, Backward) and plan.has_role(name, Role.WEIGHT)}
            made |= results
    return changed


def forgotten(facts: Facts) -> Iterator[Forgotten]:
    """Yield the weights with gradients that no step changes, in plans that change others."""
    plan, owners, updated = facts.plan, owners_of_gradients(facts), weights_updated(facts)
    trained = set(owners.values())
    stepped = sorted(trained & updated) or sorted(_changed_with_gradients(plan) & updated)
    lost = {name for name in trained - updated if plan.tensors[name].requires_grad is not False}
    if not stepped or not lost or not (lost := lost - put_in_place(plan)):
        return
    seen: set[str] = set()
    for program in plan.programs:
        for name, index, operator in plan.run_by(program):
            if not isinstance(operator, Backward | Communicate):
                continue
            for gradient in writes(operator):
                weight = owners.get(gradient, "")
                if weight in lost and weight not in seen and gradient not in plan.outputs:
                    seen.add(weight)
                    yield Forgotten(weight, stepped[0], name, index, program.ranks)
