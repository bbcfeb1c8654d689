"""Gathered parameters that are older than the optimizer step before their use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import collectives, overwritten, reads
from tvlint.analyses.gradients.optimizer_updates import is_step
from tvlint.ir.once import first_of_each
from tvlint.ir.operators import Collective, Communicate, Compute, Update
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


def _is_kept(plan: Plan, operator: Communicate | Compute) -> bool:
    """Return whether an operator takes a weight or a master weight."""
    tensor = plan.tensors.get(str(operator.inputs[0])) if operator.inputs else None
    return tensor is not None and tensor.role in (Role.WEIGHT, Role.STATE)


def _stepped(operator: object) -> tuple[str, ...]:
    """Return the weights and master weights that an optimizer step changes here."""
    if isinstance(operator, Update):
        return operator.weights
    return overwritten(operator) if isinstance(operator, Compute) and is_step(operator) else ()


def _in_program(plan: Plan, program: Program) -> Iterator[StaleGather]:
    copies: dict[str, tuple[str, Where]] = {}
    casts = set[str]()
    stale: dict[str, tuple[str, Where, Where]] = {}
    for step in program.steps:
        segment = plan.segments.get(step.segment)
        for index, operator in enumerate(segment.operators) if segment is not None else ():
            where = (step.segment, index)
            for name in reads(operator):
                if name in stale and (name not in casts or _is_gather(operator)):
                    weight, gathered, stepped = stale.pop(name)
                    yield StaleGather(*where, name, weight, gathered, stepped, program.ranks)
            is_cast = isinstance(operator, Compute) and has_trait(operator.op, Trait.CONVERSION)
            if isinstance(operator, Communicate | Compute) and (is_cast or _is_gather(operator)) and _is_kept(plan, operator):
                for name in operator.outputs:
                    copies[name] = (str(operator.inputs[0]), where)
                    stale.pop(name, None)
                    casts |= {name} if is_cast else set()
            changed = _stepped(operator)
            if changed:
                for name, (weight, gathered) in list(copies.items()):
                    if weight in changed:
                        stale[name] = (weight, gathered, where)
                        del copies[name]
