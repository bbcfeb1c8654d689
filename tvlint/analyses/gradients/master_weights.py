"""Master copies of weights: states that steps move against the gradient of a weight into which nothing puts them afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tvlint.analyses.dataflow.def_use import overwritten, reads, with_sources, writes
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.lifecycle import owners_of_gradients
from tvlint.analyses.gradients.optimizer_updates import is_step, put_in_place
from tvlint.ir.once import first_of_each
from tvlint.ir.operators import Backward, Compute, Literal, Operator, Send
from tvlint.ir.plan import Plan, Program, Role
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait
from tvlint.ops.usual_calls import as_new

_MOST_WEIGHTS = 64
"""Of values that are made of the gradients of more weights nothing is said."""


@dataclass(frozen=True, slots=True)
class MasterAlone:
    """At (`segment`, `index`) `state` is stepped with the gradient of `weight`, which nothing overwrites."""

    weight: str
    state: str
    segment: str
    index: int
    ranks: tuple[int, ...]


def masters_alone(facts: Facts) -> Iterator[MasterAlone]:
    """Yield the weights whose gradients step a state alone, each once; what a plan returns or sends, others may put back."""
    plan = facts.plan
    states = {name for name, tensor in plan.tensors.items() if tensor.role is Role.STATE}
    if not states:
        return
    found = [alone for program in plan.programs for alone in _stepped(facts, program, states)]
    if not found:
        return
    put, names = put_in_place(plan), {*plan.outputs, *(send.tensor for send in plan.operators_of(Send))}
    kept = with_sources(plan.operators(), names)
    for alone in first_of_each(found, lambda each: each.weight):
        weight = plan.tensors[alone.weight]
        if weight.requires_grad is not False and alone.weight not in put and alone.state not in kept:
            yield alone


def _stepped(facts: Facts, program: Program, states: set[str]) -> Iterator[MasterAlone]:
    made = _Made(facts.plan, owners_of_gradients(facts))
    for segment, index, each in facts.plan.run_by(program):
        operator = as_new(each, facts.plan.tensors) if isinstance(each, Compute) and not is_step(each) else each
        state = made.descends(operator, states)
        for weight in sorted(made.step_of(operator, state)) if state else ():
            yield MasterAlone(weight, state, segment, index, program.ranks)
        made.run(operator)


@dataclass(slots=True)
class _Made:
    """Of the gradients of which weights the values of a program are made; `moved` are states times whatever."""

    plan: Plan
    owners: dict[str, str]
    weights: dict[str, frozenset[str]] = field(default_factory=dict)
    negative: set[str] = field(default_factory=set)
    moved: dict[str, str] = field(default_factory=dict)

    def run(self, operator: Operator) -> None:
        results = (*writes(operator), *overwritten(operator))
        if isinstance(operator, Backward):
            self.weights |= {name: frozenset((self.owners[name],)) for name in results if name in self.owners}
            return
        of = frozenset[str]().union(*(self.weights.get(name, frozenset()) for name in reads(operator) if self._is_tensor(name)))
        of = of if len(of) <= _MOST_WEIGHTS else frozenset()
        for name in results:
            self.weights[name] = of
            self.negative.discard(name)
            self.moved.pop(name, None)
        (given, *others) = (*reads(operator), "")
        if isinstance(operator, Compute) and len(others) == 1 and len(results) == 1:
            scales = has_trait(operator.op, Trait.SCALING, Trait.VIEW, Trait.CONVERSION)
            if has_trait(operator.op, Trait.NEGATION) or (scales and (given in self.negative) is not _is_negative(operator)):
                self.negative.update(results)
            if scales and given not in results:
                self.moved[results[0]] = self.moved.get(given, given)

    def descends(self, operator: Operator, states: set[str]) -> str:
        """Return the state that an operator moves against a gradient; empty where it moves none."""
        (state, *_) = (*overwritten(operator), *writes(operator), "")
        if state not in states or not isinstance(operator, Compute):
            return ""
        (first, *others) = (*operator.tensor_operands, "")
        if is_step(operator):
            return state if first == state else ""
        if state not in (first, self.moved.get(first)) or len(others) != 2 or not has_trait(operator.op, Trait.SUM):
            return ""
        falls = (others[0] in self.negative) is not _is_negative(operator)
        return state if falls is not has_trait(operator.op, Trait.DIFFERENCE) else ""

    def step_of(self, operator: Operator, state: str) -> frozenset[str]:
        """Return the weights of whose gradients the step of a state is made."""
        given = [name for name in reads(operator)[1:] if name != state and self._is_tensor(name)]
        return frozenset[str]().union(*(self.weights.get(name, frozenset()) for name in given))

    def _is_tensor(self, name: str) -> bool:
        """Return whether a value has several elements: the norm of all gradients is the gradient of none."""
        tensor = self.plan.tensors.get(name)
        return tensor is None or any(size != 1 for size in tensor.shape)


def _is_negative(operator: Compute) -> bool:
    """Return whether the one constant of an operator is less than zero."""
    constants = [each.value for each in operator.inputs if isinstance(each, Literal)] + [*operator.attributes.values()]
    numbers = [each for each in constants if isinstance(each, int | float)]
    return len(numbers) == 1 and numbers[0] < 0
