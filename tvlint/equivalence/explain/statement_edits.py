"""Edits of one statement of a plan, for all ranks that run it: what a person may have written in its place by mistake.

Gradient operators follow their forward operators: what changes places in one does so in the other.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, pairwise
from typing import Any

from tvlint.analyses.relations.derivation.localisation.localise import name_of
from tvlint.equivalence.explain.repair import Candidate, edited
from tvlint.ir.location import Location
from tvlint.ir.operators import Backward, Collective, Communicate, Compute, Group, Literal, Operand, Operator
from tvlint.ir.plan import Plan, Role
from tvlint.ops.spec import Family, Trait
from tvlint.ops.table import SPECS, has_trait, spec_of

Statements = Mapping[Hashable, Sequence[Operator]]
"""The operators of each statement, on all ranks that run it."""

_NEAREST = 6
"""So many tensors of one shape are tried in the place of an operand, the last ones made before."""

_KINDS = (Trait.SUM, Trait.SCALING, Trait.COMPARISON)
"""Operators of which one is easily taken for another one of the same kind."""

_LONGEST = 4
"""Lists of so many numbers are tried in another order."""


def candidate(plan: Plan, words: str, changes: Mapping[int, Sequence[Operator]], where: Operator) -> Candidate[Plan]:
    """Return the plan with operators (by identity) replaced, at the place of one of them."""
    places: tuple[Location, ...] = () if where.source is None else (where.source,)
    return Candidate(words, edited(plan, changes), places)


def statement_edits(plan: Plan, reference: Plan, statements: Statements) -> Iterator[Candidate[Plan]]:
    """Yield edits of statements, in their order: each kind for all of them before the next kind."""
    computed = [group for group in statements.values() if isinstance(group[0], Compute)]
    known = _Known(reference, plan)
    alone = [[operator] for group in computed if len(group) > 1 for operator in group]
    for edits in (_as_in_the_reference, _other_values, _other_ranges, _other_operators, _exchanged, _other_operands):
        for group in (*computed, *(alone if edits in (_other_values, _other_ranges) else ())):
            yield from edits(plan, known, [operator for operator in group if isinstance(operator, Compute)])
    for group in statements.values():
        yield from _communicated(plan, group)
    yield from _added_gradients(plan)


class _Known:
    """What the operators of a reference and a plan state, by operator, and what the reference states for each result."""

    def __init__(self, reference: Plan, plan: Plan) -> None:
        self.by_results: dict[tuple[str, ...], Compute] = {}
        self.values: dict[tuple[str, int | str], dict[Any, None]] = {}
        self.alike: dict[Hashable, dict[str, None]] = {}
        for each_plan in (reference, plan):
            for operator in each_plan.operators_of(Compute):
                self._note(operator, each_plan is reference)

    def _note(self, operator: Compute, refers: bool) -> None:
        if refers:
            self.by_results.setdefault(operator.outputs, operator)
        self.alike.setdefault(_form(operator), {})[operator.op] = None
        for place, value in _stated(operator):
            if isinstance(value, Hashable):
                self.values.setdefault((_table_name(operator), place), {})[value] = None


def _form(operator: Compute) -> Hashable:
    """Return what operators have in common of which one may stand in the place of another."""
    constant = tuple(isinstance(each, Literal) for each in operator.inputs)
    return has_trait(operator.op, Trait.COMPARISON), constant, len(operator.outputs), frozenset(operator.attributes)


def _table_name(operator: Compute) -> str:
    spec = spec_of(operator.op)
    return operator.op if spec is None else spec.name


def _stated(operator: Compute) -> Iterator[tuple[int | str, Any]]:
    """Yield the constants of an operator, each with its position or its name."""
    for place, operand in enumerate(operator.inputs):
        if isinstance(operand, Literal):
            yield place, operand.value
    yield from operator.attributes.items()


def _with_value(operator: Compute, place: int | str, value: Any) -> Compute:
    if isinstance(place, str):
        return replace(operator, attributes={**operator.attributes, place: value})
    inputs = (*operator.inputs[:place], Literal(value), *operator.inputs[place + 1 :])
    return replace(operator, inputs=inputs)


def _as_in_the_reference(plan: Plan, known: _Known, group: Sequence[Compute]) -> Iterator[Candidate[Plan]]:
    """Yield the operator, with its constants, that gives the result of that name in the reference, on the operands of this
    plan.
    """
    first = group[0]
    there = known.by_results.get(first.outputs) if first.outputs else None
    tensors = first.tensor_operands
    if there is None or len(there.tensor_operands) != len(tensors):
        return
    waiting = iter(tensors)
    inputs: tuple[Operand, ...] = tuple(operand if isinstance(operand, Literal) else next(waiting) for operand in there.inputs)
    made = replace(first, op=there.op, inputs=inputs, attributes=there.attributes)
    if (made.op, made.inputs, dict(made.attributes)) != (first.op, first.inputs, dict(first.attributes)):
        words = f"make `{first.outputs[0]}` with {name_of(made)} as the reference does"
        yield candidate(plan, words, {id(each): [_follow(each, made)] for each in group}, first)


def _follow(operator: Compute, made: Compute) -> Compute:
    return replace(operator, op=made.op, inputs=made.inputs, attributes=made.attributes)


def _other_values(plan: Plan, known: _Known, group: Sequence[Compute]) -> Iterator[Candidate[Plan]]:
    """Another constant: one that such operators have there, the other of two, the next number, a list in another order."""
    first = group[0]
    stated = dict(_stated(first))
    numbers = [value for value in stated.values() if type(value) is int and value]
    for place, value in stated.items():
        moved = (value + sign * number for number in numbers for sign in (1, -1)) if type(value) is int else ()
        others = dict.fromkeys(chain(known.values.get((_table_name(first), place), ()), _near(value), moved))
        for other in others:
            if type(other) is not type(value) and not (isinstance(other, int | float) and isinstance(value, int | float)):
                continue
            if other != value:
                made = {id(each): [_with_value(each, place, other)] for each in group}
                yield candidate(plan, f"use {_text(other)} instead of {_text(value)} in {name_of(first)}", made, first)


def _other_ranges(plan: Plan, known: _Known, group: Sequence[Compute]) -> Iterator[Candidate[Plan]]:
    """The range that is as long and stands beside the one from one number of the operator to the next."""
    first = group[0]
    places = [(place, value) for place, value in _stated(first) if type(value) is int]
    for (start, low), (stop, high) in pairwise(places):
        for ahead in (high - low, low - high):
            if low < high:
                made = {id(each): [_with_value(_with_value(each, start, low + ahead), stop, high + ahead)] for each in group}
                words = f"use {low + ahead} and {high + ahead} instead of {low} and {high} in {name_of(first)}"
                yield candidate(plan, words, made, first)


def _near(value: Any) -> Iterator[Any]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, -value)
    elif isinstance(value, tuple) and 1 < len(value) <= _LONGEST:
        for one, other in combinations(range(len(value)), 2):
            order = list(value)
            order[one], order[other] = order[other], order[one]
            yield tuple(order)


def _text(value: Any) -> str:
    return f"`{value}`" if isinstance(value, str) else str(list(value) if isinstance(value, tuple) else value)


def _other_operators(plan: Plan, known: _Known, group: Sequence[Compute]) -> Iterator[Candidate[Plan]]:
    """Another operator that one of the plans uses on as many operands, or another one of its kind."""
    first = group[0]
    kind = next((trait for trait in _KINDS if has_trait(first.op, trait)), None)
    alike = [] if kind is None else [spec.name for spec in SPECS if kind in spec.traits]
    for op in dict.fromkeys((*known.alike.get(_form(first), ()), *alike)):
        if op not in (first.op, _table_name(first)):
            made = replace(first, op=op)
            words = f"use {name_of(made)} instead of {name_of(first)}"
            yield candidate(plan, words, {id(each): [replace(each, op=op)] for each in group}, first)


def _exchanged(plan: Plan, known: _Known, group: Sequence[Compute]) -> Iterator[Candidate[Plan]]:
    """Yield two operands in each other's places, or two results."""
    first = group[0]
    places = [place for place, operand in enumerate(first.inputs) if isinstance(operand, str)]
    for one, other in combinations(range(len(places)), 2):
        names = first.inputs[places[one]], first.inputs[places[other]]
        if names[0] != names[1]:
            words = f"exchange `{names[0]}` and `{names[1]}` in {name_of(first)}"
            yield _with_places(plan, words, group, (places[one], places[other]), (one, other), results=False)
    for one, other in combinations(range(len(first.outputs)), 2):
        words = f"exchange `{first.outputs[one]}` and `{first.outputs[other]}` in {name_of(first)}"
        yield _with_places(plan, words, group, (one, other), (one, other), results=True)


def _with_places(
    plan: Plan, words: str, group: Sequence[Compute], places: tuple[int, int], among_tensors: tuple[int, int], *, results: bool
) -> Candidate[Plan]:
    made: dict[int, list[Operator]] = {}
    for each in group:
        if results:
            made[id(each)] = [replace(each, outputs=_swapped(each.outputs, *places))]
        else:
            made[id(each)] = [replace(each, inputs=_swapped(each.inputs, *places))]
    for back in _backwards(plan, made):
        (forward,) = made[id(back.forward)]
        assert isinstance(forward, Compute)
        if results and max(among_tensors) < len(back.inputs):
            made[id(back)] = [replace(back, forward=forward, inputs=_swapped(back.inputs, *among_tensors))]
        if not results and max(among_tensors) < len(back.outputs):
            made[id(back)] = [replace(back, forward=forward, outputs=_swapped(back.outputs, *among_tensors))]
    return candidate(plan, words, made, group[0])


def _swapped(names: Sequence[Any], one: int, other: int) -> tuple[Any, ...]:
    swapped = list(names)
    swapped[one], swapped[other] = swapped[other], swapped[one]
    return tuple(swapped)


def _other_operands(plan: Plan, known: _Known, group: Sequence[Compute]) -> Iterator[Candidate[Plan]]:
    """Another tensor of the same shape and type in the place of an operand; its gradient is what that of others is."""
    first = group[0]
    gradients = _gradients(plan)
    for place, operand in enumerate(first.inputs):
        tensor = plan.tensors.get(operand) if isinstance(operand, str) else None
        if tensor is None or tensor.role is Role.WEIGHT:
            continue
        for name in _before(plan, first, (tensor.shape, tensor.dtype)):
            if name in first.inputs:
                continue
            made: dict[int, list[Operator]] = {}
            for each in group:
                made[id(each)] = [replace(each, inputs=(*each.inputs[:place], name, *each.inputs[place + 1 :]))]
            position = sum(isinstance(each, str) for each in first.inputs[:place])
            gradient = gradients.get(name, f"grad({name})")
            for back in _backwards(plan, made):
                if position < len(back.outputs) and back.outputs[position]:
                    outputs = (*back.outputs[:position], gradient, *back.outputs[position + 1 :])
                    (forward,) = made[id(back.forward)]
                    assert isinstance(forward, Compute)
                    made[id(back)] = [replace(back, forward=forward, outputs=outputs)]
            declared = plan
            if name not in gradients:
                made.update(_with_gradient(plan, name, gradient))
                like = replace(tensor, name=gradient, role=Role.GRADIENT, gradient_of=name, gradient="", requires_grad=False)
                of = replace(plan.tensors[name], gradient=gradient)
                declared = replace(plan, tensors={**plan.tensors, gradient: like, name: of})
            yield candidate(declared, f"use `{name}` instead of `{operand}` in {name_of(first)}", made, first)


def _with_gradient(plan: Plan, name: str, gradient: str) -> dict[int, list[Operator]]:
    """Return the gradient operators of what makes the tensor, with the gradient that it did not have."""
    return {
        id(operator): [replace(operator, inputs=tuple(gradient if of == name else given for of, given in pairs))]
        for operator in plan.operators_of(Backward)
        if name in operator.forward.outputs
        for pairs in [[*zip(operator.forward.outputs, operator.inputs, strict=False)]]
    }


def _backwards(plan: Plan, changed: Mapping[int, Sequence[Operator]]) -> list[Backward]:
    operators = plan.operators()
    return [operator for operator in operators if isinstance(operator, Backward) and id(operator.forward) in changed]


def _gradients(plan: Plan) -> dict[str, str]:
    """Return the name of the gradient of every tensor that has one."""
    found: dict[str, str] = {}
    for operator in plan.operators_of(Backward):
        tensors = operator.forward.tensor_operands
        pairs = chain(
            zip(tensors, operator.outputs, strict=False), zip(operator.forward.outputs, operator.inputs, strict=False)
        )
        found.update((name, gradient) for name, gradient in pairs if gradient)
    return found


def _before(plan: Plan, operator: Operator, kind: Hashable) -> list[str]:
    """Return the tensors of a shape and type that the segment makes before the operator, the last ones first, or takes."""
    for segment in plan.segments.values():
        place = next((place for place, each in enumerate(segment.operators) if each is operator), None)
        if place is None:
            continue
        given = [name for each in segment.operators[:place] if isinstance(each, Compute | Communicate) for name in each.outputs]
        tensors = (plan.tensors[name] for name in (*reversed(given), *segment.inputs) if name in plan.tensors)
        return list(dict.fromkeys(tensor.name for tensor in tensors if (tensor.shape, tensor.dtype) == kind))[:_NEAREST]
    return []


def _communicated(plan: Plan, group: Sequence[Operator]) -> Iterator[Candidate[Plan]]:
    """Yield a collective along another dimension or among other ranks, or left out; and one where a value is only handed on."""
    first = group[0]
    axes = [axis.name for axis in plan.mesh.axes if axis.size > 1]
    if isinstance(first, Compute):
        spec = spec_of(first.op)
        operand = first.inputs[0] if first.inputs else None
        if spec is None or spec.family is not Family.IDENTITY or len(first.outputs) != 1 or not isinstance(operand, str):
            return
        for axis in axes:
            for way in ("sum", "avg"):
                made = Communicate(Collective.ALL_REDUCE, (operand,), first.outputs, Group(axes=(axis,)), reduce=way)
                words = f"all-reduce `{operand}` over `{axis}`" + ("" if way == "sum" else f" by `{way}`")
                yield candidate(plan, words, {id(each): [replace(made, source=each.source)] for each in group}, first)
        return
    same = [each for each in group if isinstance(each, Communicate)]
    if not same or not isinstance(first, Communicate):
        return
    shape = plan.tensors[first.inputs[0]].shape if first.inputs and first.inputs[0] in plan.tensors else ()
    for dim in range(len(shape)):
        if first.dim is not None and dim != first.dim % len(shape):
            words = f"use dimension {dim} instead of {first.dim} in {name_of(first)}"
            yield candidate(plan, words, {id(each): [replace(each, dim=dim)] for each in same}, first)
        if first.concat_dim is not None and dim != first.concat_dim % len(shape):
            words = f"join along dimension {dim} instead of {first.concat_dim} in {name_of(first)}"
            yield candidate(plan, words, {id(each): [replace(each, concat_dim=dim)] for each in same}, first)
    if first.group.axes:
        for axis in axes:
            if (axis,) != first.group.axes:
                words = f"communicate over `{axis}` in {name_of(first)}"
                yield candidate(plan, words, {id(each): [replace(each, group=Group(axes=(axis,)))] for each in same}, first)
    if first.kind is Collective.ALL_REDUCE and len(first.inputs) == len(first.outputs) == 1:
        words = f"leave out the {name_of(first)} of `{first.inputs[0]}`"
        yield candidate(
            plan,
            words,
            {id(each): [Compute("identity", each.inputs, each.outputs, source=each.source)] for each in same},
            first,
        )


def _added_gradients(plan: Plan) -> Iterator[Candidate[Plan]]:
    """Yield an all-reduce of the gradient of an operand, behind the last operator of each segment that adds to it."""
    axes = [axis.name for axis in plan.mesh.axes if axis.size > 1]
    last: dict[str, dict[str, Operator]] = {}
    for segment in plan.segments.values():
        for operator in segment.operators:
            if isinstance(operator, Backward):
                for name in filter(None, operator.outputs):
                    last.setdefault(name, {})[segment.name] = operator
    for name, places in last.items():
        for axis in axes:
            first = next(iter(places.values()))
            added = Communicate(Collective.ALL_REDUCE, (name,), (name,), Group(axes=(axis,)), reduce="sum")
            words = f"all-reduce `{name}` over `{axis}`"
            made = {id(each): [each, replace(added, source=each.source)] for each in places.values()}
            yield candidate(plan, words, made, first)
