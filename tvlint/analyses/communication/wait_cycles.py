"""Cycles of ranks that wait for each other, once per root cause, and in words."""

from __future__ import annotations

from tvlint.analyses.communication.calls import Call, location_of
from tvlint.analyses.communication.deadlock import Deadlock
from tvlint.analyses.dataflow.facts import Facts
from tvlint.ir.once import first_of_each
from tvlint.ir.operators import Communicate, Operator, Receive, ReduceGradients, Send, Wait


def cycles_with_messages(found: Deadlock) -> list[tuple[Call, ...]]:
    """Return the cycles in which a send or receive takes part; cycles at the same operators on other ranks count as one."""
    return [cycle for cycle in _distinct(found) if any(_is_message(call) for call in cycle)]


def cycles_of_collectives(found: Deadlock) -> list[tuple[Call, ...]]:
    """Return the cycles in which only collectives take part."""
    return [cycle for cycle in _distinct(found) if not any(_is_message(call) for call in cycle)]


def _distinct(found: Deadlock) -> list[tuple[Call, ...]]:
    cycles = first_of_each(found.cycles, lambda cycle: frozenset((call.site.segment, call.site.index) for call in cycle))
    return [_from_lowest_rank(cycle) for cycle in cycles]


def _from_lowest_rank(cycle: tuple[Call, ...]) -> tuple[Call, ...]:
    start = min(range(len(cycle)), key=lambda at: cycle[at].rank)
    return cycle[start:] + cycle[:start]


def _is_message(call: Call) -> bool:
    operator = call.operator
    if isinstance(operator, Wait):
        return any(isinstance(issue.operator, (Send, Receive)) for issue in call.waits_for)
    return isinstance(operator, (Send, Receive))


def in_words(facts: Facts, call: Call) -> str:
    """Return what a call is, and where its text stands."""
    where = location_of(facts, call)
    line = f" (line {where.line})" if where.line is not None else ""
    peer = {Send: f" to rank {call.peer}", Receive: f" from rank {call.peer}"}.get(type(call.operator), "")
    name = _name(call.operator)
    return (f"`{name}`" if name else "an event") + peer + line


def names_of(*calls: Call) -> tuple[str, ...]:
    """Return the calls by their names; an event has none."""
    return tuple(name for call in calls if (name := _name(call.operator)))


def _name(operator: Operator) -> str:
    match operator:
        case Send():
            return f"send {operator.tensor}"
        case Receive():
            return f"recv {operator.tensor}"
        case Wait():
            return f"wait {operator.handle}"
        case Communicate():
            return operator.kind.value
        case ReduceGradients():
            return "reduce-gradients"
        case _:
            return ""
