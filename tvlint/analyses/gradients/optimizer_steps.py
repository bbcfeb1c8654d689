"""The ledger of optimizer steps: each weight once a gradient, with states of its own, and pieces that come together again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import TypeGuard

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.dataflow.facts import Facts, once_per_plan
from tvlint.analyses.gradients.lifecycle import owners_of_gradients
from tvlint.analyses.gradients.optimizer_updates import is_step
from tvlint.ir.operators import Backward, Collective, Communicate, Compute, Operator, ReduceGradients, Send, Update
from tvlint.ir.plan import Plan, Program, Role
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait, spec_of

Where = tuple[str, int]

_MOVES = (Trait.APART, Trait.CONVERSION, Trait.RANGES, Trait.TRANSPOSE, Trait.VIEW)


@dataclass(frozen=True, slots=True)
class SteppedAgain:
    """At `where` `weight` is stepped with the gradient that stepped it at `first`."""

    weight: str
    where: Where
    first: Where
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SharedState:
    """At `where` `weight` is stepped with `state`, which is the state of `other` at `first`."""

    weight: str
    state: str
    other: str
    where: Where
    first: Where
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SwappedState:
    """At `where` `function` takes `state` as its operand of this number, and as its `usual` one at `first`."""

    function: str
    state: str
    place: int
    usual: int
    where: Where
    first: Where
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Misplaced:
    """At `where` `weight` is stepped with `name` in the place of `wanted`, though it is `given` of `owner`."""

    weight: str
    name: str
    wanted: str
    given: str
    owner: str
    where: Where
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scattered:
    """At `where` `piece` is stepped, the rank's own piece of `weight` since `first`, and no rank gets the other pieces."""

    weight: str
    piece: str
    where: Where
    first: Where
    ranks: tuple[int, ...]


@once_per_plan
def _steps(facts: Facts) -> dict[str, list[tuple[Where, Operator]]]:
    """Return the steps of optimizers in each segment that has any."""
    return _in_segments(facts.plan, lambda operator: isinstance(operator, Update) or _is_step(operator))


def stepped_again(facts: Facts) -> Iterator[SteppedAgain]:
    """Yield the steps of weights whose gradient has not changed since their last step, each once."""
    plan, steps = facts.plan, _steps(facts)
    if not steps:
        return
    owners, seen = owners_of_gradients(facts), set[Where]()
    stepped_names = {name for found in steps.values() for _, each in found for pair in _stepped(each).items() for name in pair}
    followed = stepped_names | {name for name, weight in owners.items() if weight in stepped_names}
    changing = _in_segments(
        plan, lambda operator: isinstance(operator, Update) or _is_step(operator) or not followed.isdisjoint(_changes(operator))
    )
    for program in plan.programs:
        last: dict[str, tuple[Where, str]] = {}
        stepped_with: dict[str, set[str]] = {}
        for where, operator in _run(changing, program):
            stepped = _stepped(operator)
            named = Counter(operator.weights) if isinstance(operator, Update) and where not in seen else {}
            for weight in (weight for weight, times in named.items() if times > 1):
                seen.add(where)
                yield SteppedAgain(weight, where, where, program.ranks)
            for weight, gradient in stepped.items():
                first, other = last.get(weight, (where, ""))
                if first != where and where not in seen and (gradient == other or "" in (gradient, other)):
                    seen.add(where)
                    yield SteppedAgain(weight, where, first, program.ranks)
                last[weight] = where, gradient
                stepped_with.setdefault(gradient, set()).add(weight)
            changed = set() if stepped or not last else set(_changes(operator))
            changed |= {owners[name] for name in changed if name in owners}
            for name in changed:
                last.pop(name, None)
                for weight in stepped_with.pop(name, ()):
                    if weight in last and last[weight][1] == name:
                        del last[weight]


def shared_states(facts: Facts) -> Iterator[SharedState]:
    """Yield the steps that take the state of another weight, of as many numbers as either weight has, each once."""
    plan, seen, steps = facts.plan, set[tuple[str, str]](), _steps(facts)
    for program in plan.programs if steps else ():
        owners: dict[str, tuple[str, Where]] = {}
        for where, operator in _run(steps, program):
            if not _is_step(operator):
                continue
            weight = str(operator.inputs[0])
            for state in (name for name in operator.inputs[2:] if isinstance(name, str)):
                other, first = owners.setdefault(state, (weight, where))
                if other != weight and (state, weight) not in seen and _is_state_of(plan, state, (weight, other)):
                    seen.add((state, weight))
                    yield SharedState(weight, state, other, where, first, program.ranks)


def swapped_states(facts: Facts) -> Iterator[SwappedState]:
    """Yield the steps that take a state for another operand than most steps of the function do, on other ranks or later."""
    tensors, uses = facts.plan.tensors, dict[tuple[str, str], dict[int, list[tuple[Where, str]]]]()
    every = (item for found in _steps(facts).values() for item in found)
    steps = ((where, operator) for where, operator in every if _is_step(operator))
    for where, operator in steps:
        for place, name in enumerate(operator.inputs, start=1):
            if isinstance(name, str) and name in tensors and tensors[name].role is Role.STATE:
                whole = tensors[name].logical
                state = name if facts.plan.has_role(whole, Role.WEIGHT) else whole or name
                uses.setdefault((operator.op, state), {}).setdefault(place, []).append((where, name))
    seen = set[Where]()
    for (function, _), places in uses.items():
        usual = max(places, key=lambda place: len(places[place]))
        for place, (where, name) in ((place, use) for place, others in places.items() for use in others if place != usual):
            if where not in seen:
                seen.add(where)
                first, ranks = places[usual][0][0], facts.ranks_running(where[0])
                yield SwappedState(function.rpartition(".")[2], name, place, usual, where, first, ranks)


def misplaced(facts: Facts) -> Iterator[Misplaced]:
    """Yield the steps of the operator table that take a weight, or a piece of one, for a gradient or state, or a gradient for a
    state.
    """
    plan, gradients, moved = facts.plan, dict[str, str](), dict[str, str]()
    for operator in plan.operators() if _steps(facts) else ():
        moves = isinstance(operator, Communicate) or (isinstance(operator, Compute) and has_trait(operator.op, *_MOVES))
        if isinstance(operator, Backward):
            values = zip(operator.outputs, operator.forward.tensor_operands, strict=False)
            gradients |= {name: of for name, of in values if plan.has_role(of, Role.WEIGHT)}
        elif moves and len(read := reads(operator)) == 1:
            moved |= dict.fromkeys(writes(operator), read[0])
    for where, operator in (item for found in _steps(facts).values() for item in found):
        if not _is_step(operator) or spec_of(operator.op) is None:
            continue
        for place, name in enumerate(operator.inputs[1:]):
            end, seen = str(name), set[str]()
            while end in moved.keys() - seen - gradients.keys():
                seen.add(end)
                end = moved[end]
            weight, wanted = str(operator.inputs[0]), "a state" if place else "its gradient"
            if plan.has_role(end, Role.WEIGHT):
                yield Misplaced(weight, str(name), wanted, "a piece", end, where, facts.ranks_running(where[0]))
            elif place and end in gradients:
                yield Misplaced(weight, str(name), wanted, "the gradient", gradients[end], where, facts.ranks_running(where[0]))


def scattered(facts: Facts) -> Iterator[Scattered]:
    """Yield the steps of a rank's piece of a weight that all ranks hold, whose pieces nothing puts together, each once."""
    plan = facts.plan
    if not any(_is_step(operator) for found in _steps(facts).values() for _, operator in found):
        return
    seen, followed = set[Where](), _in_segments(plan, lambda operator: isinstance(operator, Communicate | Compute | Send))
    for program in plan.programs:
        pieces: dict[str, tuple[str, Where]] = {}
        views: dict[str, str] = {}
        stepped: dict[str, Where] = {}
        for where, operator in _run(followed, program):
            if _is_step(operator) and operator.inputs[0] in pieces:
                stepped |= dict.fromkeys((str(operator.inputs[0]), *operator.outputs), where)
                pieces |= {name: pieces[str(operator.inputs[0])] for name in operator.outputs}
                continue
            used = {stepped[name] for name in reads(operator) if name in stepped}
            stepped = {name: at for name, at in stepped.items() if at not in used} if used else stepped
            if isinstance(operator, Communicate) and operator.kind is Collective.CHUNK:
                weights = zip(operator.outputs, (views.get(name, name) for name in operator.inputs), strict=False)
                pieces |= {piece: (weight, where) for piece, weight in weights if plan.has_role(weight, Role.WEIGHT)}
            elif isinstance(operator, Compute) and has_trait(operator.op, Trait.VIEW) and len(operator.outputs) == 1:
                given = operator.tensor_operands[0] if operator.tensor_operands else ""
                views[operator.outputs[0]] = views.get(given, given)
        for name, where in stepped.items():
            if where not in seen and name not in plan.outputs:
                seen.add(where)
                weight, first = pieces[name]
                yield Scattered(weight, name, where, first, program.ranks)


def _in_segments(plan: Plan, is_followed: Callable[[Operator], bool]) -> dict[str, list[tuple[Where, Operator]]]:
    """Return the operators of each segment that are followed, of segments that have any."""
    found: dict[str, list[tuple[Where, Operator]]] = {}
    for name, segment in plan.segments.items():
        for index, operator in enumerate(segment.operators):
            if is_followed(operator):
                found.setdefault(name, []).append(((name, index), operator))
    return found


def _run(followed: dict[str, list[tuple[Where, Operator]]], program: Program) -> Iterator[tuple[Where, Operator]]:
    """Yield those operators of segments that the program runs, in order, in all micro-batches."""
    for step in program.steps:
        yield from followed.get(step.segment, ())


def _stepped(operator: Operator) -> dict[str, str]:
    """Return the weights that the operator steps, with the gradient that it names (none: empty)."""
    if isinstance(operator, Update):
        return dict.fromkeys(operator.weights, "")
    return {str(operator.inputs[0]): str(operator.inputs[1])} if _is_step(operator) else {}


def _changes(operator: Operator) -> tuple[str, ...]:
    """Return the tensors that the operator makes or reduces."""
    return operator.weights if isinstance(operator, ReduceGradients) else writes(operator)


def _is_step(operator: Operator) -> TypeGuard[Compute]:
    """Return whether an operator steps its first operand with its second."""
    if not isinstance(operator, Compute) or not is_step(operator):
        return False
    return len(operator.inputs) > 1 and all(isinstance(name, str) for name in operator.inputs[:2])


def _is_state_of(plan: Plan, state: str, weights: tuple[str, str]) -> bool:
    tensor, others = plan.tensors.get(state), [plan.tensors.get(weight) for weight in weights]
    if tensor is None or tensor.role is not Role.STATE or prod(tensor.shape) == 1:
        return False
    return all(other is not None and other.role is not Role.STATE and other.shape == tensor.shape for other in others)
