"""Optimizer steps that a plan writes out: what stands in weights and states before and after each, by the operators' names.

A value is what an operator makes of its operands, or what a weight, state or other given tensor holds after so many steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from operator import attrgetter
from typing import TypeAlias

from tvlint.analyses.dataflow.def_use import overwritten, reads, writes
from tvlint.analyses.dataflow.facts import Facts, once_per_plan
from tvlint.analyses.gradients.lifecycle import weight_gradients
from tvlint.analyses.gradients.optimizer_steps import SteppedAgain
from tvlint.analyses.gradients.optimizer_updates import is_step
from tvlint.ir.once import first_of_each
from tvlint.ir.operators import SUMS, Backward, Collective, Communicate, Compute, Operator, Update
from tvlint.ir.placement import Replicate
from tvlint.ir.plan import Plan, Program, Role
from tvlint.ops.spec import Family, Trait
from tvlint.ops.table import spec_of
from tvlint.ops.usual_calls import as_copy, as_new

Where = tuple[str, int]

_MOST_VALUES = 64
"""So many values are looked at behind one copy: a longer way is no plain step."""

_MOST_SEARCHES = 16
"""So many values of one program are followed to what they are made of."""

_MOVES = frozenset(
    {Trait.APART, Trait.CONVERSION, Trait.DETACHED, Trait.JOIN, Trait.MOVES, Trait.RANGES, Trait.TRANSPOSE, Trait.VIEW}
)
_BY_ELEMENT = _MOVES | {Trait.NEGATION, Trait.SCALING, Trait.SUM}
_LOCAL = frozenset({Trait.CONVERSION, Trait.DETACHED, Trait.SCALING, Trait.SUM, Trait.VIEW})
_KEPT = (Role.WEIGHT, Role.STATE, Role.BUFFER)
_MOVED = (Collective.ALL_GATHER, Collective.ALL_TO_ALL, Collective.BROADCAST, Collective.CHUNK, Collective.SCATTER)


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """What the tensor `name` holds after so many steps."""

    name: str
    steps: int


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """A value that `operator` makes at a time of the program; `backward` says that a gradient goes into it."""

    operator: Operator
    name: str
    given: tuple[_Value, ...]
    since: int
    backward: bool


_Value: TypeAlias = "_Held | _Made"


@dataclass(frozen=True, slots=True)
class Unchanged:
    """At `where` `weight` is overwritten with `value`, which is what `held` was before the step."""

    weight: str
    value: str
    held: str
    where: Where
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OfAnother:
    """At `where` the state `state` of `weight` is overwritten with what is made of `other` in its place."""

    weight: str
    state: str
    other: str
    where: Where
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LocalStatistic:
    """At `where` `buffer` is overwritten with what is made of `local`, a statistic of which `total` sums all parts."""

    buffer: str
    local: str
    total: str
    where: Where
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TooEarly:
    """At `where` a gradient that comes from before the step of `weight` at `stepped` meets what it holds since."""

    weight: str
    gradient: str
    where: Where
    stepped: Where
    ranks: tuple[int, ...]


_WHERE = attrgetter("where")


def unchanged(facts: Facts) -> Iterator[Unchanged]:
    """Yield the copies into weights that leave them as they were, in programs that step them in no other way, each once."""
    yield from first_of_each((each for ledger in _ledgers(facts) for each in ledger.unchanged()), _WHERE)


def of_another(facts: Facts) -> Iterator[OfAnother]:
    """Yield the copies into states of one weight of what is made of another weight, or of its gradient, each once."""
    yield from first_of_each((each for ledger in _ledgers(facts) for each in ledger.of_another()), _WHERE)


def too_early(facts: Facts) -> Iterator[TooEarly]:
    """Yield the gradients that are made with a weight as it is after a step that came between, each once."""
    yield from first_of_each((each for ledger in _ledgers(facts) for each in ledger.too_early()), _WHERE)


def local_statistics(facts: Facts) -> Iterator[LocalStatistic]:
    """Yield the copies into buffers of statistics of a rank's own data, which the program sums over ranks too, each once."""
    yield from first_of_each(
        (each for ledger in _ledgers(facts) for each in ledger.local_statistics()), lambda each: each.where
    )


def added_again(facts: Facts) -> Iterator[SteppedAgain]:
    """Yield the additions to a weight or state of what the run has added to it before, each once."""
    yield from first_of_each((each for ledger in _ledgers(facts) for each in ledger.again), _WHERE)


@once_per_plan
def _ledgers(facts: Facts) -> tuple[_Ledger, ...]:
    """Return the programs that write steps out, or go on after a step; in most plans the step is what all ends with."""
    plan = facts.plan
    steps = {name: _steps(plan, name) for name in plan.segments}
    written = {name for name, (out, _, _) in steps.items() if out}
    chosen = []
    for program in plan.programs:
        run = [step.segment for step in program.steps if step.segment in steps]
        first = next((at for at, name in enumerate(run) if steps[name][1] < _NEVER), len(run))
        goes_on = run[first:] and steps[run[first]][1] < steps[run[first]][2]
        if goes_on or any(steps[name][2] >= 0 for name in run[first + 1 :]) or not written.isdisjoint(run):
            chosen.append(_Ledger(plan, program))
    return tuple(chosen)


_NEVER = 1 << 60


def _steps(plan: Plan, name: str) -> tuple[bool, int, int]:
    """Return of a segment whether it overwrites weights or states, where it first steps weights, and its last product."""
    out, first, last = False, _NEVER, -1
    for index, operator in enumerate(plan.segments[name].operators):
        if isinstance(operator, Update):
            first = min(first, index)
        elif isinstance(operator, Compute) and operator.in_place:
            names = (plan.tensors.get(name) for name in overwritten(operator))
            kept = any(tensor is not None and tensor.role in _KEPT for tensor in names)
            out = out or (kept and not is_step(operator))
            first = min(first, index) if kept else first
        elif isinstance(operator, Backward) or _has(operator, {Trait.CONTRACTION}):
            last = index
    return out, first, last


class _Ledger:
    """What the names of one program hold while it runs, and the copies and products that its steps take part in."""

    def __init__(self, plan: Plan, program: Program) -> None:
        self.plan, self.ranks = plan, program.ranks
        self.owners = weight_gradients(plan)
        self.last: dict[str, _Value] = {}
        self.stepped: dict[str, list[tuple[int, Where]]] = {}
        self.copies: list[tuple[str, str, _Value, _Value, Where]] = []
        self.early: set[Where] = set()
        self.totals: dict[object, str] = {}
        self.put: list[tuple[str, _Value, Where]] = []
        self.added: dict[tuple[str, str, _Value], Where] = {}
        self.again: list[SteppedAgain] = []
        self.products: list[tuple[str, tuple[_Value, ...], Where]] = []
        self.time, self.goes_back = 0, False
        steps = (step.segment for step in program.steps if step.segment in plan.segments)
        for name in steps:
            self.added.clear()
            for index, operator in enumerate(plan.segments[name].operators):
                self.time += 1
                self._run(operator, (name, index))

    def unchanged(self) -> Iterator[Unchanged]:
        """Yield the copies of what a weight, or its master copy, was before its step.

        Before the backward pass a master copy is what the last step has left.
        """
        backward = any(isinstance(value, _Made) and value.backward for value in self.last.values())
        for into, taken, value, before, where in self.copies:
            held = self._all_of(value) if self.plan.has_role(into, Role.WEIGHT) else None
            if held is None or len(self.stepped[into]) != 1:
                continue
            itself = isinstance(before, _Held) and held.name == into and held.steps == before.steps and backward
            stale = held.steps == 0 and held.name in self.stepped and where not in self.early
            if itself or (stale and self._is_of(held.name, into)):
                yield Unchanged(into, taken, held.name, where, self.ranks)

    def of_another(self) -> Iterator[OfAnother]:
        """Yield the copies into weights and states that hold what is made of the states of another weight, or into states, of
        another weight; a number may be the count of all steps.
        """
        for into, _, value, _, where in self.copies:
            is_state = self.plan.has_role(into, Role.STATE)
            of = self.plan.tensors[into].logical if is_state else into
            if not self.plan.has_role(of, Role.WEIGHT) or prod(self.plan.tensors[into].shape) == 1:
                continue
            ends = self._behind(value, _BY_ELEMENT)
            held = {each.name for each in ends if isinstance(each, _Held) and self.plan.has_role(each.name, Role.STATE)}
            states = {name for name in held if self.plan.has_role(self.plan.tensors[name].logical, Role.WEIGHT)}
            others = {name for name in states if self._names(of).isdisjoint(self._names(self.plan.tensors[name].logical))}
            weights = {self._weight_of(each) for each in ends} - {""}
            if others and into not in held and (is_state or others == held):
                yield OfAnother(of, into, min(others), where, self.ranks)
            elif is_state and weights and all(self._names(of).isdisjoint(self._names(weight)) for weight in weights):
                yield OfAnother(of, into, min(weights), where, self.ranks)
        pulled = {
            into: self._pulled_to(into, value) for into, _, value, _, _ in self.copies if self.plan.has_role(into, Role.WEIGHT)
        }
        for into, _, _, _, where in self.copies:
            others = {each for each in pulled.get(into, ()) if into not in pulled.get(each, {into})}
            yield from [OfAnother(into, into, min(others), where, self.ranks)] if others else []

    def _pulled_to(self, weight: str, value: _Value) -> set[str]:
        """Return the other weights of which a step adds something to one, beside its gradient; two may pull each other."""
        ends = self._behind(value, _BY_ELEMENT)
        stepped = any(isinstance(each, _Made) and self._weight_of(each) in self._names(weight) for each in ends)
        held = {each.name for each in ends if isinstance(each, _Held) and self.plan.has_role(each.name, Role.WEIGHT)}
        return {each for each in held if stepped and self._names(each).isdisjoint(self._names(weight))}

    def local_statistics(self) -> Iterator[LocalStatistic]:
        """Yield what puts a statistic of data into a buffer of which a collective sums a statistic."""
        for into, value, where in self.put:
            for each in self._behind(value, _LOCAL) if self._is_of_data(into) and self._is_replica(into) else ():
                total = self.totals.get(_key(each.given[0])) if isinstance(each, _Made) and each.given else None
                if total and isinstance(each, _Made) and _has(each.operator, {Trait.REDUCTION}):
                    yield LocalStatistic(into, each.name, total, where, self.ranks)
                    break

    def too_early(self) -> Iterator[TooEarly]:
        """Yield the products of a gradient and a weight that has been stepped since the gradient began."""
        searched = 0
        for name, given, where in self.products:
            for place, one in enumerate(given):
                weight = self._all_of(one)
                if weight is None or not weight.steps or not self.plan.has_role(weight.name, Role.WEIGHT):
                    continue
                when, stepped = self.stepped[weight.name][weight.steps - 1]
                others = [each for at, each in enumerate(given) if at != place and isinstance(each, _Made)]
                late = [each for each in others if each.backward and each.since < when]
                if late and searched < _MOST_SEARCHES:
                    searched += 1
                    if any(self._was_read(each, weight) for each in late):
                        yield TooEarly(weight.name, name, where, stepped, self.ranks)

    def _run(self, operator: Operator, where: Where) -> None:
        if isinstance(operator, Update):
            for name in operator.weights:
                self._step(name, where)
            return
        copy = as_copy(operator, self.plan.tensors) if isinstance(operator, Compute) else operator
        given = tuple(map(self._value, reads(operator)))
        self._note_added(operator, given, where)
        if isinstance(operator, Backward):
            self.goes_back = True
            tensors = operator.forward.tensor_operands
            operands = tuple(map(self._value, tensors))
            wanted = [name for name in operator.outputs if name]
            if _has(operator.forward, {Trait.CONTRACTION}) and wanted:
                kept = [each for each, other in zip(operands, _others(operator.outputs), strict=False) if other]
                self.products.append((wanted[0], (*given, *kept), where))
            given = (*given, *operands, *map(self._value, operator.forward.outputs))
        elif isinstance(operator, Communicate) and operator.root is not None and operator.root not in self.ranks:
            given = ()
        elif isinstance(operator, Communicate) and operator.kind in SUMS:
            ends = [end for value in given for end in self._behind(value, _LOCAL)]
            whole = [end for end in ends if isinstance(end, _Made) and end.given and _has(end.operator, {Trait.REDUCTION})]
            self.totals.update((_key(end.given[0]), operator.outputs[0]) for end in whole if operator.outputs)
        elif _has(operator, {Trait.CONTRACTION}) and writes(operator):
            self.products.append((writes(operator)[0], given, where))
        made = {name: self._made(operator, name, given) for name in (*writes(operator), *overwritten(operator))}
        for name, value in made.items():
            if not self.plan.has_role(name, *_KEPT):
                self.last[name] = value
                continue
            if copy is not operator and isinstance(copy, Compute):
                taken = str(copy.inputs[0])
                self.copies.append((name, taken, self._value(taken), self._value(name), where))
                if not self.goes_back:
                    self.early.add(where)
            self.put += [(name, each, where) for read, each in zip(reads(operator), given, strict=True) if read != name]
            self._step(name, where)

    def _note_added(self, operator: Operator, given: tuple[_Value, ...], where: Where) -> None:
        """Note what an operator adds to a weight or state in its place, and whether the run has added the same to it before."""
        new = as_new(operator, self.plan.tensors) if isinstance(operator, Compute) and len(given) == 2 else operator
        if new is operator or not _has(new, {Trait.SUM}):
            return
        (target,), value = overwritten(operator), given[1]
        if isinstance(value, _Made) and self.plan.has_role(target, Role.WEIGHT, Role.STATE):
            first = self.added.setdefault((target, str(getattr(new, "op", "")), value), where)
            self.again += [SteppedAgain(target, where, first, self.ranks)] if first != where else []

    def _made(self, operator: Operator, name: str, given: tuple[_Value, ...]) -> _Made:
        before = [value for value in given if isinstance(value, _Made)]
        backward = isinstance(operator, Backward) or any(value.backward for value in before)
        return _Made(operator, name, given, min((value.since for value in before), default=self.time), backward)

    def _step(self, name: str, where: Where) -> None:
        self.stepped.setdefault(name, []).append((self.time, where))

    def _value(self, name: str) -> _Value:
        return self.last.get(name) or _Held(name, len(self.stepped.get(name, ())))

    def _is_of_data(self, name: str) -> bool:
        """Return whether a tensor is a buffer, or a state of no weight."""
        is_state = self.plan.has_role(name, Role.STATE)
        return self.plan.has_role(name, Role.BUFFER) or (is_state and not self.plan.tensors[name].logical)

    def _is_replica(self, name: str) -> bool:
        """Return whether all ranks are to hold the same in a tensor."""
        tensor = self.plan.tensors[name]
        return tensor.part[1] == 1 and all(isinstance(each, Replicate) for each in (tensor.placements or {}).values())

    def _is_of(self, state: str, weight: str) -> bool:
        return self.plan.has_role(state, Role.STATE) and self.plan.tensors[state].logical in self._names(weight)

    def _names(self, weight: str) -> set[str]:
        """Return the names of a weight, one of which it shares with each that it is tied to."""
        tensor = self.plan.tensors[weight]
        return {weight, tensor.logical or weight, tensor.storage or weight}

    def _weight_of(self, value: _Value) -> str:
        """Return the weight that a value is, or is the gradient of; empty for any other."""
        if isinstance(value, _Made):
            return self.owners.get(value.name, "")
        return value.name if self.plan.has_role(value.name, Role.WEIGHT) else ""

    def _all_of(self, value: _Value) -> _Held | None:
        """Return the one weight or state that all elements of a value are from; None where there is no such one."""
        ends = self._behind(value, _MOVES)
        held = [each for each in ends if isinstance(each, _Held) and self.plan.has_role(each.name, *_KEPT)]
        one = held[0] if held and len(held) == len(ends) else None
        return one if one and all((each.name, each.steps) == (one.name, one.steps) for each in held) else None

    def _behind(self, value: _Value, traits: frozenset[Trait]) -> list[_Value]:
        """Return what a value is made of by operators of the traits; nothing where that is too much."""
        ends, seen, waiting = list[_Value](), {id(value)}, [value]
        while waiting:
            each = waiting.pop()
            if isinstance(each, _Held) or self.owners.get(each.name) or not _is_of(each.operator, traits):
                ends.append(each)
                continue
            new = [operand for operand in each.given if id(operand) not in seen]
            seen.update(map(id, new))
            waiting += new
            if len(seen) > _MOST_VALUES:
                return []
        return ends

    def _was_read(self, value: _Made, weight: _Held) -> bool:
        """Return whether a value is made of the weight as it was before its last step."""
        seen, waiting = {id(value)}, list[_Value]([value])
        while waiting:
            each = waiting.pop()
            if isinstance(each, _Held):
                if each.name == weight.name and each.steps < weight.steps:
                    return True
                continue
            new = [operand for operand in each.given if id(operand) not in seen]
            seen.update(map(id, new))
            waiting += new
        return False


def _key(value: _Value) -> object:
    return (value.name, value.steps) if isinstance(value, _Held) else id(value)


def _others(gradients: tuple[str, ...]) -> list[bool]:
    """Return for each operand whether the gradient of another one is asked for, which needs its value."""
    return [any(name for at, name in enumerate(gradients) if at != place) for place in range(len(gradients))]


def _has(operator: Operator, traits: set[Trait]) -> bool:
    spec = spec_of(operator.op) if isinstance(operator, Compute) and not is_step(operator) else None
    return spec is not None and not spec.traits.isdisjoint(traits)


def _is_of(operator: Operator, traits: frozenset[Trait]) -> bool:
    if isinstance(operator, Communicate):
        return (Trait.JOIN in traits and operator.kind in _MOVED) or (traits is _BY_ELEMENT and operator.kind in SUMS)
    spec = spec_of(operator.op) if isinstance(operator, Compute) else None
    return spec is not None and (spec.family in (Family.IDENTITY, Family.RESHAPE) or not spec.traits.isdisjoint(traits))
