"""Gradients of another activation than the one that the forward pass applies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.ir.once import first_of_each
from tvlint.ir.operators import Backward, Compute, Operator
from tvlint.ir.plan import Plan, Program
from tvlint.ops.spec import Trait
from tvlint.ops.table import canonical_name, differentiated, has_trait

_Placed = tuple[str, int, Operator]
_KNOWN = (Trait.ACTIVATION, Trait.CONTRACTION)
_MOST = 64
"""A value that more operators make or are applied to is left out."""


@dataclass(frozen=True, slots=True)
class OtherForward:
    """At (`segment`, `index`) comes the gradient of `taken` at `name`, to which the plan applies `applied` at `first`."""

    name: str
    taken: str
    applied: str
    segment: str
    index: int
    first: tuple[str, int]
    ranks: tuple[int, ...]


def other_forwards(plan: Plan) -> Iterator[OtherForward]:
    """Yield the gradients of activations that the plan does not apply there, each once."""
    found = (each for program in plan.programs for each in _in_program(plan, program))
    yield from first_of_each(found, lambda each: (each.segment, each.index))


def _in_program(plan: Plan, program: Program) -> Iterator[OtherForward]:
    if any(step.inputs is not None or step.outputs is not None for step in program.steps):
        return
    operators = list(plan.run_by(program))
    gradients = [(place, *_taken(place[2])) for place in operators]
    wanted = {name for _, name, taken in gradients if taken}
    near: dict[str, list[_Placed]] = {}
    for place in operators if wanted else ():
        for name in {*writes(place[2]), *reads(place[2])}:
            if name in wanted:
                near.setdefault(name, []).append(place)
    applied: dict[tuple[str, bool], list[tuple[str, int, str]]] = {}
    for (segment, index, operator), name, taken in gradients:
        by_call = isinstance(operator, Compute)
        if taken and (name, by_call) not in applied:
            applied[name, by_call] = _applied(name, near.get(name, []), by_call)
        at_name = applied[name, by_call] if taken else []
        if at_name and not any(applies in taken for _, _, applies in at_name):
            first = next((place for place in at_name if has_trait(place[2], Trait.ACTIVATION)), at_name[0])
            yield OtherForward(name, taken[0], first[2], segment, index, first[:2], program.ranks)


def _taken(operator: Operator) -> tuple[str, tuple[str, ...]]:
    """Return at which value an operator takes the gradient of an activation, and of which; empty for any other operator."""
    if isinstance(operator, Compute):
        names, of = differentiated(operator.op), next((name for name in operator.inputs[1:] if isinstance(name, str)), "")
    elif isinstance(operator, Backward):
        names, of = (canonical_name(operator.forward.op),), next(iter(operator.forward.outputs), "")
    else:
        return "", ()
    return of, names if of and any(has_trait(name, Trait.ACTIVATION) for name in names) else ()


def _applied(name: str, near: list[_Placed], by_call: bool) -> list[tuple[str, int, str]]:
    """Return the operators whose gradient may be taken at a value: that make it or, where a call takes it, are applied to it.

    Nothing where one of them is not known, or they are too many to compare.
    """
    found: list[tuple[str, int, str]] = []
    for segment, index, operator in near:
        if isinstance(operator, Backward) or (isinstance(operator, Compute) and differentiated(operator.op)):
            continue
        if name not in writes(operator) and not by_call:
            continue
        if not isinstance(operator, Compute) or not has_trait(operator.op, *_KNOWN) or len(found) == _MOST:
            return []
        found.append((segment, index, canonical_name(operator.op)))
    return found
