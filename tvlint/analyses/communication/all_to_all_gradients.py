"""Gradients that do not go back the way of an all-to-all: rows that moved to other ranks have their gradients there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tvlint.analyses.communication.all_to_all import words_of
from tvlint.analyses.dataflow.def_use import collectives, reads, writes
from tvlint.analyses.dataflow.facts import Facts
from tvlint.ir.once import first_of_each
from tvlint.ir.operators import Backward, Collective, Communicate, Compute, Operator, Receive
from tvlint.ir.plan import Program, Role

Where = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Astray:
    """At `where` the gradient `gradient` of `value` is used, though `value` went through the all-to-all at `sent`."""

    gradient: str
    value: str
    where: Where
    sent: Where
    group: str
    ranks: tuple[int, ...]


@dataclass(slots=True)
class _Uses:
    """Who makes and who reads each name in one program."""

    made: dict[str, list[Operator]] = field(default_factory=lambda: defaultdict(list))
    read: dict[str, list[tuple[Where, Operator]]] = field(default_factory=lambda: defaultdict(list))


def astray(facts: Facts) -> Iterator[Astray]:
    """Backward operators of what an all-to-all alone takes further, whose gradient no communication has brought."""
    if not any(_exchanges(facts, collective) for collective in collectives(facts.plan)):
        return
    found = (each for program in facts.plan.programs for each in _in_program(facts, program))
    yield from first_of_each(found, lambda each: each.where)


def _exchanges(facts: Facts, operator: Operator) -> bool:
    if not isinstance(operator, Communicate) or operator.kind is not Collective.ALL_TO_ALL:
        return False
    group = facts.plan.declared(operator.group)
    return len(set(group.ranks)) > 1 or any(facts.plan.mesh.axis_size(axis) > 1 for axis in group.axes)


def _in_program(facts: Facts, program: Program) -> Iterator[Astray]:
    plan, uses = facts.plan, _Uses()
    run = [name for name in dict.fromkeys(step.segment for step in program.steps) if name in plan.segments]
    if any(step.inputs is not None or step.outputs is not None for step in program.steps):
        return
    for name in run:
        for index, operator in enumerate(plan.segments[name].operators):
            for read in reads(operator):
                uses.read[read].append(((name, index), operator))
            for written in writes(operator):
                uses.made[written].append(operator)
    for name in run:
        for index, operator in enumerate(plan.segments[name].operators):
            if not isinstance(operator, Backward):
                continue
            for gradient, value in zip(operator.inputs, operator.forward.outputs, strict=False):
                sent = _only_exchanged(facts, uses, value)
                if gradient and sent is not None and _stayed(facts, uses, program, gradient, sent[1]):
                    group = words_of(facts.plan.declared(sent[1].group))
                    yield Astray(gradient, value, (name, index), sent[0], group, program.ranks)


def _only_exchanged(facts: Facts, uses: _Uses, value: str) -> tuple[Where, Communicate] | None:
    """Return the all-to-all that alone takes `value` further on the way to the result."""
    if value in facts.plan.outputs:
        return None
    takers = [(where, taker) for where, taker in uses.read.get(value, ()) if not _is_stored_for_backward(facts, taker)]
    if len(takers) != 1:
        return None
    where, taker = takers[0]
    return (where, taker) if isinstance(taker, Communicate) and _exchanges(facts, taker) else None


def _is_stored_for_backward(facts: Facts, operator: Operator) -> bool:
    """Return whether the operator works on gradients."""
    tensors = facts.plan.tensors
    made = [tensors[name].role for name in writes(operator) if name in tensors]
    return isinstance(operator, Backward) or Role.GRADIENT in made


def _stayed(facts: Facts, uses: _Uses, program: Program, gradient: str, exchange: Communicate) -> bool:
    """Return whether the gradient is known to be that of the exchanged value, with nothing that brought it back.

    An exchange with other ranks altogether has not.
    """
    pending, seen = [gradient], set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        makers = uses.made.get(name, [])
        if any(isinstance(maker, Communicate | Receive) for maker in makers):
            return all(_is_with_others(facts, program, maker, exchange) for maker in makers)
        if not makers and not (_is_result(facts, uses, exchange) and _is_called_after(facts, name, exchange)):
            return False
        pending.extend(read for maker in makers if isinstance(maker, Compute) for read in reads(maker))
    return True


def _is_with_others(facts: Facts, program: Program, operator: Operator, exchange: Communicate) -> bool:
    """Return whether the operator exchanges with none of the ranks that `exchange` does."""
    if not isinstance(operator, Communicate) or operator.kind is not Collective.ALL_TO_ALL or not _exchanges(facts, operator):
        return False
    one, other = facts.plan.declared(operator.group), facts.plan.declared(exchange.group)
    if one.axes and other.axes:
        return set(one.axes).isdisjoint(other.axes)
    return bool(one.ranks and other.ranks) and set(one.ranks) & set(other.ranks) <= set(program.ranks[:1])


def _is_result(facts: Facts, uses: _Uses, exchange: Communicate) -> bool:
    """Return whether nothing takes further what the exchange gives, so that a gradient from outside is that of its result."""
    takers = [taker for output in exchange.outputs for _, taker in uses.read.get(output, ())]
    return all(_is_stored_for_backward(facts, taker) for taker in takers)


def _is_called_after(facts: Facts, gradient: str, exchange: Communicate) -> bool:
    """Return whether a gradient that comes from outside says that it is that of what the exchange gives."""
    tensor = facts.plan.tensors.get(gradient)
    owner = tensor.gradient_of if tensor is not None else ""
    forms = ("d{}", "d_{}", "g_{}", "grad_{}", "grad({})", "{}_grad", "{}.grad")
    return any(output == owner or gradient in [form.format(output) for form in forms] for output in exchange.outputs)
