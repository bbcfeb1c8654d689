"""Runs that make again what they have made: activations that are computed anew before their backward.

A segment of operators that only compute makes the same values of the same values. A run of it is left out where the run before,
of the same micro-batch, read the same values under the same names, and where nothing in between has changed what it reads,
gives, or keeps for gradients. What is left out communicates nothing, draws nothing and adds to no gradient.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tvlint.analyses.dataflow.def_use import writes
from tvlint.analyses.dataflow.step_scope import only_ends
from tvlint.ir.operators import Compute
from tvlint.ir.plan import Phase, Plan, Program, Role, Segment, Step
from tvlint.ops.table import spec_of


def without_repeated_runs(plan: Plan) -> Plan:
    """Return the plan without runs that make what is there already; the plan itself where it has none."""
    steps = list(plan.steps())
    if any(step.segment not in plan.segments for step in steps) or not any(map(_runs_again, plan.programs)):
        return plan
    programs = tuple(
        replace(program, steps=_without(plan, program, _pure(plan, program))) if _runs_again(program) else program
        for program in plan.programs
    )
    return plan if programs == plan.programs else replace(plan, programs=programs)


def _runs_again(program: Program) -> bool:
    runs = Counter((step.segment, step.micro_batch) for step in program.steps)
    return any(times > 1 for times in runs.values())


def _pure(plan: Plan, program: Program) -> set[str]:
    """Return the segments of a program that do nothing but make values, which no other segment of it makes."""
    segments = {step.segment: plan.segments[step.segment] for step in program.steps}
    made = [{name for operator in segment.operators for name in writes(operator)} for segment in segments.values()]
    makers = Counter(name for names in made for name in names)
    return {name for name, segment in segments.items() if _only_computes(plan, segment, makers)}


def _only_computes(plan: Plan, segment: Segment, makers: Counter[str]) -> bool:
    """Return whether all that the segment does is to make values by pure operators, of names that no other segment makes."""
    if segment.phase not in (Phase.FORWARD, Phase.BACKWARD):
        return False
    for operator in segment.operators:
        spec = spec_of(operator.op) if isinstance(operator, Compute) else None
        if (
            spec is None
            or spec.may_draw
            or not isinstance(operator, Compute)
            or operator.in_place
            or not operator.outputs
            or operator.stream
        ):
            return False
        if any(makers[name] > 1 or plan.has_role(name, Role.GRADIENT) for name in operator.outputs):
            return False
    return not any(plan.has_role(name, Role.GRADIENT) for name in (*segment.inputs, *segment.outputs))


def _without(plan: Plan, program: Program, pure: set[str]) -> tuple[Step, ...]:
    kept: list[Step] = []
    ran: dict[tuple[str, int], Step] = {}
    for step in program.steps:
        segment = plan.segments[step.segment]
        before = ran.get((step.segment, step.micro_batch))
        if before is not None and (before.inputs, before.outputs) == (step.inputs, step.outputs):
            continue
        kept.append(step)
        if step.micro_batch < 0 or _may_change_anything(segment):
            ran.clear()
            continue
        changed = _keys(plan, step, {*segment.outputs, *(name for operator in segment.operators for name in writes(operator))})
        ran = {key: step for key, step in ran.items() if changed.isdisjoint(_keys(plan, step))}
        if step.segment in pure:
            ran[step.segment, step.micro_batch] = step
    return tuple(kept)


def _may_change_anything(segment: Segment) -> bool:
    """Return whether the segment updates weights, or calls what may change more than it gives."""
    calls = (operator for operator in segment.operators if isinstance(operator, Compute))
    return only_ends(segment) or any(call.in_place or not call.outputs or spec_of(call.op) is None for call in calls)


def _keys(plan: Plan, step: Step, chosen: set[str] | None = None) -> set[object]:
    """Return what tells apart the values of a run, or the `chosen` ones of them, by the names of the segment."""
    segment = plan.segments[step.segment]
    inputs, outputs = step.outside(segment)
    pairs = ((segment.inputs, inputs, step.inputs), (segment.outputs, outputs, step.outputs))
    return {
        outer if given is not None else (step.micro_batch, outer)
        for names, outside, given in pairs
        for inner, outer in zip(names, outside, strict=False)
        if chosen is None or inner in chosen
    }
