"""Cycles of ranks that wait for each other, once per root cause, and in words."""

from __future__ import annotations

from tvlint.analyses.communication.calls import Call
from tvlint.analyses.communication.deadlock import Standstill
from tvlint.analyses.dataflow.facts import Facts
from tvlint.ir.location import Location
from tvlint.ir.operators import Communicate, Receive, ReduceGradients, Send, Wait


def cycles_with_messages(found: Standstill) -> list[tuple[Call, ...]]:
    """The cycles in which a send or receive takes part; cycles at the same operators on other ranks count as one."""
    return [cycle for cycle in _distinct(found) if any(_is_message(call) for call in cycle)]


def cycles_of_collectives(found: Standstill) -> list[tuple[Call, ...]]:
    """The cycles in which only collectives take part."""
    return [cycle for cycle in _distinct(found) if not any(_is_message(call) for call in cycle)]


def _distinct(found: Standstill) -> list[tuple[Call, ...]]:
    seen: set[frozenset[object]] = set()
    chosen = []
    for cycle in found.cycles:
        key = frozenset((call.site.segment, call.site.index) for call in cycle)
        if key not in seen:
            seen.add(key)
            start = min(range(len(cycle)), key=lambda at: cycle[at].rank)
            chosen.append(cycle[start:] + cycle[:start])
    return chosen


def _is_message(call: Call) -> bool:
    operator = call.operator
    if isinstance(operator, Wait):
        return any(isinstance(issue.operator, (Send, Receive)) for issue in call.waits_for)
    return isinstance(operator, (Send, Receive))


def in_words(facts: Facts, call: Call) -> str:
    """Return what a call is, and where its text stands."""
    operator = call.operator
    where = location_of(facts, call)
    line = f" (line {where.line})" if where.line is not None else ""
    if isinstance(operator, Send):
        return f"`send {operator.tensor}` to rank {call.peer}{line}"
    if isinstance(operator, Receive):
        return f"`recv {operator.tensor}` from rank {call.peer}{line}"
    if isinstance(operator, Wait):
        return f"`wait {operator.handle}`{line}"
    if isinstance(operator, Communicate):
        return f"`{operator.kind.value}`{line}"
    if isinstance(operator, ReduceGradients):
        return f"`reduce-gradients`{line}"
    return f"an event{line}"


def location_of(facts: Facts, call: Call) -> Location:
    """Return where the operator of `call` stands."""
    return facts.call(call)
