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


def _stepped(plan: Plan, operator: Operator) -> tuple[str, ...]:
    """Return the weights and master weights that an optimizer step changes here, or one of its operators where it is written
    out.
    """
    if isinstance(operator, Update):
        return operator.weights
    changed = overwritten(operator) if isinstance(operator, Compute) else ()
    is_whole_step = isinstance(operator, Compute) and is_step(operator)
    return tuple(name for name in changed if is_whole_step or plan.has_role(name, Role.WEIGHT))


def _applies(operator: Operator) -> bool:
    """Return whether an operator applies a weight to a value: a step that is written out may read old copies, too."""
    return isinstance(operator, Compute) and has_trait(operator.op, Trait.CONTRACTION)


def _copies_or_steps(plan: Plan, name: str) -> bool:
    """Return whether a segment makes copies of weights, or changes weights or copies."""
    segment = plan.segments.get(name)
    operators = segment.operators if segment is not None else ()
    return any(_copied(plan, each) or isinstance(each, Update) or overwritten(each) for each in operators)


def _in_program(plan: Plan, program: Program) -> Iterator[StaleGather]:
    copies: dict[str, tuple[str, Where]] = {}
    casts, written_out = set[str](), set[str]()
    stale: dict[str, tuple[str, Where, Where]] = {}
    marked = {name for name in {step.segment for step in program.steps} if _copies_or_steps(plan, name)}
    for step in program.steps:
        segment = plan.segments.get(step.segment)
        if segment is None or not (stale or step.segment in marked):
            continue
        for index, operator in enumerate(segment.operators):
            where = (step.segment, index)
            for name in reads(operator):
                judged = _is_gather(operator) or not (name in casts or (name in written_out and not _applies(operator)))
                if name in stale and judged:
                    weight, gathered, stepped = stale.pop(name)
                    yield StaleGather(*where, name, weight, gathered, stepped, program.ranks)
            if copied := _copied(plan, operator):
                for name in writes(operator):
                    copies[name] = (copied, where)
                    stale.pop(name, None)
                    casts |= set() if _is_gather(operator) else {name}
            for name in copies.keys() & set(overwritten(operator)):
                del copies[name]
            changed = _stepped(plan, operator)
            if changed:
                for name, (weight, gathered) in list(copies.items()):
                    if weight in changed:
                        stale[name] = (weight, gathered, where)
                        written_out |= {name} if isinstance(operator, Compute) and not is_step(operator) else set()
                        del copies[name]
