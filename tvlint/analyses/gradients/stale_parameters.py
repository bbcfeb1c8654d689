"""Gathered parameters that are older than the optimizer step before their use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import collectives, overwritten, reads, writes
from tvlint.analyses.gradients.optimizer_updates import is_step
from tvlint.ir.once import first_of_each
from tvlint.ir.operators import Collective, Communicate, Compute, Operator, Update
from tvlint.ir.plan import Plan, Program, Role
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

Where = tuple[str, int]


@dataclass(frozen=True, slots=True)
class StaleGather:
    """`name`, gathered from `weight` at `gathered`, is read at (`segment`, `index`), after the step at `stepped`."""

    segment: str
    index: int
    name: str
    weight: str
    gathered: Where
    stepped: Where
    ranks: tuple[int, ...]


def stale_gathers(plan: Plan) -> Iterator[StaleGather]:
    """Yield the first use of every gathered parameter that an optimizer step has overtaken; once per operator."""
    gathers = any(map(_is_gather, collectives(plan)))
    found = (each for program in plan.programs if gathers for each in _in_program(plan, program))
    yield from first_of_each(found, lambda each: (each.segment, each.index))


def _is_gather(operator: object) -> bool:
    return isinstance(operator, Communicate) and operator.kind is Collective.ALL_GATHER and len(operator.inputs) == 1


def _copied(plan: Plan, operator: Operator) -> str:
    """Return the weight or master weight that an operator gathers or casts; empty for any other operator."""
    is_cast = isinstance(operator, Compute) and has_trait(operator.op, Trait.CONVERSION)
    if not isinstance(operator, Communicate | Compute) or not (is_cast or _is_gather(operator)) or not operator.inputs:
        return ""
    name = str(operator.inputs[0])
    return name if plan.has_role(name, Role.WEIGHT, Role.STATE) else ""


def _stepped(operator: object) -> tuple[str, ...]:
    """Return the weights and master weights that an optimizer step changes here."""
    if isinstance(operator, Update):
        return operator.weights
    return overwritten(operator) if isinstance(operator, Compute) and is_step(operator) else ()


def _copies_or_steps(plan: Plan, name: str) -> bool:
    """Return whether a segment has copies of weights made, or weights changed."""
    segment = plan.segments.get(name)
    return segment is not None and any(_copied(plan, operator) or _stepped(operator) for operator in segment.operators)


def _in_program(plan: Plan, program: Program) -> Iterator[StaleGather]:
    copies: dict[str, tuple[str, Where]] = {}
    casts = set[str]()
    stale: dict[str, tuple[str, Where, Where]] = {}
    marked = {name for name in {step.segment for step in program.steps} if _copies_or_steps(plan, name)}
    for step in program.steps:
        segment = plan.segments.get(step.segment)
        if segment is None or not (stale or step.segment in marked):
            continue
        for index, operator in enumerate(segment.operators):
            where = (step.segment, index)
            for name in reads(operator):
                if name in stale and (name not in casts or _is_gather(operator)):
                    weight, gathered, stepped = stale.pop(name)
                    yield StaleGather(*where, name, weight, gathered, stepped, program.ranks)
            if copied := _copied(plan, operator):
                for name in writes(operator):
                    copies[name] = (copied, where)
                    stale.pop(name, None)
                    casts |= set() if _is_gather(operator) else {name}
            changed = _stepped(operator)
            if changed:
                for name, (weight, gathered) in list(copies.items()):
                    if weight in changed:
                        stale[name] = (weight, gathered, where)
                        del copies[name]
