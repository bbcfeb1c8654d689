"""Gradients of a value that are added to nothing, or not computed, while backward goes on with others of that value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import zip_longest
from operator import attrgetter

from tvlint.analyses.dataflow.def_use import has, overwritten, reads, with_sources, writes
from tvlint.analyses.dataflow.facts import Facts, once_per_plan
from tvlint.analyses.gradients.optimizer_updates import put_in_place, updated_weights
from tvlint.analyses.gradients.undefined_uses import missing
from tvlint.ir.once import first_of_each
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, Update
from tvlint.ir.plan import Plan, Role, Segment
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_KEPT = (Role.WEIGHT, Role.STATE, Role.BUFFER)
"""What is there after a step, too."""

_MOVES = (Trait.VIEW, Trait.CONVERSION, Trait.TRANSPOSE)


@dataclass(frozen=True, slots=True)
class LostGradient:
    """`name`, the gradient of `of` by way of `result`, which (`segment`, `index`) computes, is added to nothing.

    Without a name it is not computed.
    """

    name: str
    of: str
    result: str
    segment: str
    index: int


def lost_gradients(plan: Plan) -> Iterator[LostGradient]:
    """Yield the gradients that nothing uses of weights that are stepped and of values that backward goes on from, each once.

    A value that two operators read has two gradients, and what goes on is their sum. What goes on from one of several results
    has those of the others in it, too. Nothing is said of a plan that uses what nothing makes, a misspelt gradient perhaps, or
    of a value by itself whose gradients are all lost: what goes on is of another one. Each program is judged alone, and where
    runs give values other names, each segment. One of several losses may train some of the weights alone: what it gives a
    value no gradient at all leaves none out.
    """
    steps = [step for step in plan.steps() if step.segment in plan.segments]
    names, ends = tuple(dict.fromkeys(step.segment for step in steps)), _ends(plan)
    if any(step.inputs is not None or step.outputs is not None for step in steps):
        alone = [name for name in names if _has_dead_end(plan.segments[name], ends) or _leaves_out(plan.segments[name])]
        mirrors = Counter(plan.segments[name].mirror for name in names)
        found = [
            lost
            for name in alone
            for lost in _lost_in(plan, (name,), ends)
            if lost.name or mirrors[plan.segments[name].mirror] == 1
        ]
    else:
        run = [
            tuple(dict.fromkeys(step.segment for step in each.steps if step.segment in plan.segments)) for each in plan.programs
        ]
        found = [*first_of_each((lost for each in dict.fromkeys(run) for lost in _lost_in(plan, each, ends)), _PLACE)]
    if found and not any(True for _ in missing(plan)):
        yield from found


_PLACE = attrgetter("segment", "index", "name", "of")


@dataclass(frozen=True, slots=True)
class _Ends:
    """What is left of a plan at its end, and the weights that are stepped, with gradients of which it says the names."""

    left: frozenset[str]
    stepped: frozenset[str]


def _has_dead_end(segment: Segment, ends: _Ends) -> bool:
    """Return whether a segment with a backward makes what nothing in it reads, and does not leave it."""
    if not has(segment.operators, {Backward}):
        return False
    made = {name for operator in segment.operators for name in writes(operator)}.difference(segment.outputs, ends.left)
    return not made.issubset(name for operator in segment.operators for name in reads(operator))


def _leaves_out(segment: Segment) -> bool:
    """Return whether a segment that goes back through another one alone does not ask for every gradient."""
    return bool(segment.mirror) and any(
        isinstance(each, Backward) and not all(each.outputs) and any(each.outputs) for each in segment.operators
    )


def _ends(plan: Plan) -> _Ends:
    made = {name for operator in plan.operators() for name in writes(operator)}
    final = {tensor.gradient for name, tensor in plan.tensors.items() if tensor.gradient and name not in made}
    kept = {name for name, tensor in plan.tensors.items() if tensor.role in _KEPT}
    updated = {name for each in plan.operators_of(Update) for name in each.weights} & plan.tensors.keys()
    unnamed = {name for name in updated if plan.tensors[name].gradient not in made}
    put = put_in_place(plan) if updated_weights(plan) else frozenset[str]()
    weights = {name for name in put - unnamed if plan.tensors[name].role is Role.WEIGHT}
    return _Ends(frozenset((*plan.outputs, *final, *kept)), frozenset(weights))


def _lost_in(plan: Plan, run: tuple[str, ...], ends: _Ends) -> Iterator[LostGradient]:
    """Yield the gradients that these segments lose; what leaves one alone, others may use."""
    operators = [(name, index, each) for name in run for index, each in enumerate(plan.segments[name].operators)]
    every = [operator for _, _, operator in operators]
    made = {name for operator in every for name in writes(operator)}
    leaves = {name for name in run[:1] for name in plan.segments[name].outputs if len(run) == 1}
    used = with_sources(every, {*(ends.left & made), *_used(every), *leaves})
    backward = [operator for operator in every if isinstance(operator, Backward)]
    goes_on = {name for operator in backward for name in _results(operator, taken=True)}
    given = [(place, name) for operator in every for place, name in gradients_given(operator) if name]
    goes_on |= ends.stepped & {*(of for (_, of), _ in given), *(name for operator in every for name in reads(operator))}
    for operator in every:
        if isinstance(operator, Communicate) and not goes_on.isdisjoint(operator.inputs):
            goes_on.update(operator.outputs)
        if isinstance(operator, Communicate) and not used.isdisjoint(operator.outputs):
            goes_on |= {plan.tensors[name].gradient_of for name in operator.inputs if name in plan.tensors} - {""}
    ignored = _ignored(every, given, used, ends.stepped, goes_on)
    goes_on &= {of for (_, of), name in given if name in used}
    without = {name for operator in backward if any(operator.inputs) for name in _results(operator, taken=False)}
    asked_for = {place for place, _ in given}
    starts = _starts(every, made)
    given_from = {
        (of, start)
        for operator in every
        for (_, of), name in gradients_given(operator)
        if name
        for start in starts[id(operator)]
    }
    for segment, index, operator in operators:
        for (result, of), name in gradients_given(operator):
            is_left_out = (result, of) not in asked_for and any((of, start) in given_from for start in starts[id(operator)])
            lost = name not in used if name else is_left_out
            if lost and (of in goes_on or (name and of in without) or name in ignored):
                yield LostGradient(name, of, result, segment, index)


def _ignored(
    operators: Sequence[Operator],
    given: Sequence[tuple[tuple[str, str], str]],
    used: AbstractSet[str],
    stepped: AbstractSet[str],
    goes_on: AbstractSet[str],
) -> set[str]:
    """Return the gradients of weights that are stepped with none of them, and several of a value from which backward goes on
    with none of them.
    """
    pieces = {name: name for name in stepped}
    for operator in operators:
        moves = isinstance(operator, Communicate) or (isinstance(operator, Compute) and has_trait(operator.op, *_MOVES))
        if moves and len(reads(operator)) == 1:
            pieces |= {name: pieces[of] for of in reads(operator) if of in pieces for name in writes(operator)}
    found, results = dict[str, set[str]](), dict[str, set[str]]()
    for (result, of), name in given:
        owner = pieces.get(of) or (of if of in goes_on else "")
        if owner:
            found.setdefault(owner, set()).add(name)
            results.setdefault(owner, set()).add(result)
    lost = [owner for owner, names in found.items() if names.isdisjoint(used)]
    return set[str]().union(*(found[owner] for owner in lost if owner in stepped or len(results[owner]) > 1))


@once_per_plan
def not_passed_on(facts: Facts) -> tuple[LostGradient, ...]:
    """Return the gradients that backward does not go on with though it goes on from their values, once an operator."""
    found: dict[tuple[str, int], LostGradient] = {}
    for each in (*lost_gradients(facts.plan), *_starved(facts.plan)):
        found.setdefault((each.segment, each.index), each)
    return tuple(found.values())


def _starved(plan: Plan) -> Iterator[LostGradient]:
    """Yield the gradients that a backward leaves out, or that has none, of values from which another goes on with what nothing
    there makes.
    """
    for program in plan.programs:
        run = dict.fromkeys(step.segment for step in program.steps if step.segment in plan.segments)
        operators = [(name, index, each) for name in run for index, each in enumerate(plan.segments[name].operators)]
        backward = [(name, index, each) for name, index, each in operators if isinstance(each, Backward)]
        made = {name for _, _, each in operators for name in writes(each)} if backward else set()
        made |= {name for segment in run for name in plan.segments[segment].inputs}
        starved = {
            of
            for _, _, each in backward
            for name, of in zip(each.inputs, each.forward.outputs, strict=False)
            if name and name not in made and any(each.outputs)
        }
        for segment, index, operator in backward if starved else ():
            for (result, of), name in gradients_given(operator):
                if of in starved and not name:
                    yield LostGradient("", of, result, segment, index)
        yield from _without_backward([each for _, _, each in operators], backward, starved) if starved else ()


def _without_backward(
    operators: Sequence[Operator], backward: Sequence[tuple[str, int, Operator]], starved: set[str]
) -> Iterator[LostGradient]:
    """Yield the values from which backward goes on, and that are read by an operator that has no backward, though what it gives
    has a gradient.
    """
    gone_back = {each.forward.outputs for _, _, each in backward if isinstance(each, Backward)}
    with_gradient = {of for _, _, each in backward for (_, of), name in gradients_given(each) if name}
    lost = {
        of: operator.outputs[0]
        for operator in operators
        if isinstance(operator, Compute) and operator.outputs not in gone_back and not has_trait(operator.op, Trait.DETACHED)
        for of in starved.intersection(operator.tensor_operands)
        if not with_gradient.isdisjoint(operator.outputs)
    }
    for segment, index, operator in backward if lost else ():
        for of in lost.keys() & set(operator.forward.outputs) if isinstance(operator, Backward) else ():
            yield LostGradient("", of, lost[of], segment, index)


def gradients_given(operator: Operator) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the results and operands of a forward operator by which its backward gives gradients; empty where it gives none."""
    if isinstance(operator, Backward) and any(operator.inputs) and operator.forward.outputs:
        operands = operator.forward.tensor_operands
        for name, of in zip_longest(operator.outputs[: len(operands)], operands, fillvalue=""):
            yield (operator.forward.outputs[0], of), name


def _starts(operators: list[Operator], made: set[str]) -> dict[int, frozenset[str]]:
    """Return for each backward, by identity, the gradients that nothing makes and that it goes on from."""
    found: dict[int, frozenset[str]] = {}
    behind: dict[str, frozenset[str]] = {}
    for operator in operators:
        new = {name for name in operator.inputs if name and name not in made} if isinstance(operator, Backward) else set[str]()
        starts = frozenset(new).union(*(behind.get(name, frozenset()) for name in reads(operator)))
        if isinstance(operator, Backward):
            found[id(operator)] = starts
        behind.update(dict.fromkeys(writes(operator), starts))
    return found


def _used(operators: list[Operator]) -> Iterator[str]:
    """Yield what operators read that do more than compute or move values, and what they overwrite."""
    for operator in operators:
        if isinstance(operator, Backward) or not getattr(operator, "outputs", ()):
            yield from reads(operator)
        elif isinstance(operator, Compute) and operator.in_place:
            yield from (*reads(operator), *overwritten(operator), *operator.outputs)


def _results(operator: Backward, *, taken: bool) -> Iterator[str]:
    """Yield the results of a forward operator of which its backward takes gradients, or those of which it takes none."""
    yield from (of for name, of in zip(operator.inputs, operator.forward.outputs, strict=False) if bool(name) is taken)
