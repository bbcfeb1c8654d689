"""Gradients of another activation than the one that the forward pass applies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.ir.operators import Backward, Compute, Operator
from tvlint.ir.plan import Plan, Program
from tvlint.ops.spec import Trait
from tvlint.ops.table import canonical_name, differentiated, has_trait

_Placed = tuple[str, int, Operator]
_KNOWN = (Trait.ACTIVATION, Trait.CONTRACTION)


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
    seen = set[tuple[str, int]]()
    for program in plan.programs:
        for found in _in_program(plan, program):
            if (found.segment, found.index) not in seen:
                seen.add((found.segment, found.index))
                yield found


def _in_program(plan: Plan, program: Program) -> Iterator[OtherForward]:
    if any(step.inputs is not None or step.outputs is not None for step in program.steps):
        return
    run = dict.fromkeys(step.segment for step in program.steps if step.segment in plan.segments)
    operators = [(name, index, each) for name in run for index, each in enumerate(plan.segments[name].operators)]
    for segment, index, operator in operators:
        name, taken = _taken(operator)
        if taken:
            near = [place for place in operators if _may_apply(place[2], name, operator)]
            yield from _compared(name, taken, (segment, index), near, program.ranks)


def _taken(operator: Operator) -> tuple[str, tuple[str, ...]]:
    """Return at which value an operator takes the gradient of an activation, and of which; empty for any other operator."""
    if isinstance(operator, Compute):
        names, of = differentiated(operator.op), next((name for name in operator.inputs[1:] if isinstance(name, str)), "")
    elif isinstance(operator, Backward):
        names, of = (canonical_name(operator.forward.op),), next(iter(operator.forward.outputs), "")
    else:
        return "", ()
    return of, names if of and any(has_trait(name, Trait.ACTIVATION) for name in names) else ()


def _may_apply(operator: Operator, name: str, gradient: Operator) -> bool:
    """Return whether the operator may be the one whose gradient is taken at a value: makes it, or is applied to it."""
    if isinstance(operator, Backward) or (isinstance(operator, Compute) and differentiated(operator.op)):
        return False
    return name in writes(operator) or (isinstance(gradient, Compute) and name in reads(operator))


def _compared(
    name: str, taken: tuple[str, ...], where: tuple[str, int], near: list[_Placed], ranks: tuple[int, ...]
) -> Iterator[OtherForward]:
    """Yield the gradient where all operators that it may be of are known, and are others."""
    known = [place for place in near if isinstance(place[2], Compute) and has_trait(place[2].op, *_KNOWN)]
    applied = [(segment, index, canonical_name(getattr(operator, "op", ""))) for segment, index, operator in known]
    if not applied or len(known) < len(near) or any(applies in taken for _, _, applies in applied):
        return
    activations = [place for place in applied if has_trait(place[2], Trait.ACTIVATION)]
    segment, index, applies = next(iter(activations or applied))
    yield OtherForward(name, taken[0], applies, *where, (segment, index), ranks)
