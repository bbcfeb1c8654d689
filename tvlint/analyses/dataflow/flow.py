"""The way of a wrong value through its segment, from the operator that makes it to the one that uses it."""

from __future__ import annotations

from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Related

_MOST_STEPS = 6
"""So many operators on the way are listed, the last ones and the cause."""


@dataclass(frozen=True, slots=True)
class _Made:
    """A value, the operator that makes it, and the value on the way that it is made of."""

    name: str
    index: int
    of: _Made | None


def way(facts: Facts, cause: tuple[str, int], use: tuple[str, int], name: str, made: str) -> tuple[Related, ...]:
    """Return the operators by which what `cause` makes comes to `use` as `name`; `made` says what stands at the cause."""
    first = Related(made, facts.place(*cause), leads=True)
    operators = facts.plan.segments[cause[0]].operators
    known = {each_name: _Made(each_name, cause[1], None) for each_name in writes(operators[cause[1]])}
    for index in range(cause[1] + 1, use[1] if cause[0] == use[0] else 0):
        source = next((known[each_name] for each_name in reads(operators[index]) if each_name in known), None)
        for each in writes(operators[index]):
            known.pop(each, None)
            if source is not None:
                known[each] = _Made(each, index, source)
    steps: list[Related] = []
    step = known.get(name)
    while step is not None and step.of is not None and len(steps) < _MOST_STEPS:
        said = f"`{step.name}` is made of `{step.of.name}`"
        steps.append(Related(said, facts.place(cause[0], step.index), leads=True))
        step = step.of
    return (first, *reversed(steps))
