"""Weights that no gradient reaches, since a backward operator leaves out that of a value which is made of them."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import overwritten, reads, writes
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.lifecycle import owners_of_gradients
from tvlint.analyses.gradients.lost_gradients import gradients_given
from tvlint.analyses.gradients.optimizer_updates import weights_updated
from tvlint.ir.operators import Communicate, Compute, Operator, ReduceGradients, Update
from tvlint.ir.plan import Plan, Role
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait, spec_of

_NO_GRADIENT = (Trait.DETACHED, Trait.COMPARISON, Trait.LIKE, Trait.ORDER)
_MOST_WEIGHTS = 64
"""Where more weights get no gradient, most of a model is frozen."""

_TRAINED = ""
"""Stands for all weights that are trained."""


@dataclass(frozen=True, slots=True)
class Untrained:
    """(`segment`, `index`) leaves out the gradient of `of`, which is made of `weight`; no other leads to it."""

    weight: str
    of: str
    result: str
    segment: str
    index: int


def untrained(facts: Facts) -> Iterator[Untrained]:
    """Yield the weights that are not frozen and get no gradient where one of a value is left out that is made of them, and of a
    weight that is trained, each once.

    A value that is made of weights alone that get no gradient may be what a teacher gives. One whose own gradient is left out
    is not asked for, and one that something overwrites learns in another way.
    """
    plan, stepped, owners = facts.plan, weights_updated(facts), owners_of_gradients(facts)
    weights = {name for name, tensor in plan.tensors.items() if tensor.role is Role.WEIGHT}
    trained = {owners[name] for operator in plan.operators() for name in writes(operator) if name in owners}
    shared = {identity for name in trained | stepped for identity in _identities(plan, name)}
    without = {name for name in weights if plan.tensors[name].requires_grad and shared.isdisjoint(_identities(plan, name))}
    if not 0 < len(without) <= _MOST_WEIGHTS or not stepped & trained:
        return
    run = [name for name in dict.fromkeys(step.segment for step in plan.steps()) if name in plan.segments]
    operators = [(name, index, each) for name in run for index, each in enumerate(plan.segments[name].operators)]
    start = {name: frozenset((name,)) for name in without} | dict.fromkeys(trained & weights, frozenset((_TRAINED,)))
    made = _made_of(plan, [operator for _, _, operator in operators], start)
    for segment, index, operator in operators:
        for (result, of), name in gradients_given(operator):
            behind = made.get(of, frozenset()) if not name and of not in weights else frozenset()
            for weight in sorted(behind & without) if _TRAINED in behind else ():
                without.discard(weight)
                yield Untrained(weight, of, result, segment, index)


def _identities(plan: Plan, weight: str) -> set[str]:
    tensor = plan.tensors[weight]
    return {weight, tensor.logical or weight, tensor.storage or weight}


def _made_of(plan: Plan, operators: Sequence[Operator], start: Mapping[str, frozenset[str]]) -> Mapping[str, frozenset[str]]:
    """Return by value to which of those that the derivation starts with its gradient would lead."""
    found = dict(start)
    for operator in operators:
        is_open = isinstance(operator, Compute) and (spec_of(operator.op) is None or has_trait(operator.op, *_NO_GRADIENT))
        if not isinstance(operator, Compute | Communicate) or is_open:
            continue
        made = frozenset[str]().union(*(found.get(name, frozenset()) for name in reads(operator)))
        for name in (*writes(operator), *overwritten(operator)):
            tensor = plan.tensors.get(name)
            if name not in start and (tensor is None or not tensor.dtype or not holds_whole_numbers(tensor.dtype)):
                found[name] = made
    return found


@dataclass(frozen=True, slots=True)
class LeftOut:
    """On `ranks`, which step `weight`, (`segment`, `index`) leaves out its gradient; other ranks have one."""

    weight: str
    result: str
    segment: str
    index: int
    ranks: tuple[int, ...]


def left_out_on_ranks(facts: Facts) -> Iterator[LeftOut]:
    """Yield the weights of which ranks do not ask for the gradient, and other ranks do, of the same or of another shard: those
    that they reduce or update by their names; all where nothing is updated, which the caller of the plan does.
    """
    plan, owners = facts.plan, owners_of_gradients(facts)
    operators = {program: list(plan.run_by(program)) for program in plan.programs} if len(plan.programs) > 1 else {}
    made = {
        program: {owners[name] for _, _, each in run for name in writes(each) if name in owners}
        for program, run in operators.items()
    }
    every = set[str]().union(*(_identities(plan, name) for name in set[str]().union(*made.values())))
    leaves_open = not weights_updated(facts)
    for program, run in operators.items():
        stepped = {weight for _, _, each in run if isinstance(each, Update | ReduceGradients) for weight in each.weights}
        if leaves_open:
            stepped |= {of for _, _, each in run for (_, of), _ in gradients_given(each) if plan.has_role(of, Role.WEIGHT)}
        without = {name for name in stepped - made[program] if _is_trained(plan, name, every)}
        for segment, index, operator in run if without else ():
            for (result, of), name in gradients_given(operator):
                if of in without and not name:
                    without.discard(of)
                    yield LeftOut(of, result, segment, index, program.ranks)


def _is_trained(plan: Plan, weight: str, trained: Container[str]) -> bool:
    """Return whether a weight is not frozen, and is, or shares its name in the model or memory with, one that is trained."""
    tensor = plan.tensors.get(weight)
    return tensor is not None and tensor.requires_grad and any(name in trained for name in _identities(plan, weight))
