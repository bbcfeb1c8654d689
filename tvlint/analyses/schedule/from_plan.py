"""The pipeline schedule that the programs of a plan run."""

from __future__ import annotations

from collections import Counter

from tvlint.ir.location import Location
from tvlint.ir.plan import Phase, Plan, Program, Segment
from tvlint.ir.schedule import Action, ActionKind, Row, Schedule

_KINDS = {Phase.FORWARD: ActionKind.FORWARD, Phase.BACKWARD: ActionKind.BACKWARD}

PLAN_RULES = ("schedule-short-warm-up", "schedule-out-of-order", "schedule-fifo-inversion", "schedule-over-activation-budget")
"""The rules of schedules that say of a plan what no rule of plans says."""


def schedule_of(plan: Plan) -> Schedule | None:
    """Return what every pipeline rank computes, in order; None where the plan does not say it one segment a stage and
    micro-batch.

    Ranks that run the same pipeline stages count as one pipeline rank; those that come first in the flow are first.
    """
    rows: dict[frozenset[int], list[Action]] = {}
    for program in plan.programs:
        actions = _actions(plan, program)
        stages = frozenset(action.stage for action in actions)
        if stages and max(Counter(map(str, actions)).values()) > 1:
            return None
        if stages:
            rows.setdefault(stages, actions)
    taken = [stage for stages in rows for stage in stages]
    if len(rows) < 2 or len(set(taken)) < len(taken):
        return None
    ordered = sorted(rows.items(), key=lambda item: min(item[0]))
    return Schedule(plan.path, tuple(Row(tuple(actions), Location(plan.path)) for _, actions in ordered))


def _actions(plan: Plan, program: Program) -> list[Action]:
    found = []
    for step in program.steps:
        segment = plan.segments.get(step.segment)
        if segment is None or segment.phase not in _KINDS or not segment.operators or step.micro_batch < 0:
            continue
        stage = _stage(plan, segment)
        if stage >= 0:
            found.append(Action(_KINDS[segment.phase], stage, step.micro_batch, _place(plan, segment)))
    return found


def _stage(plan: Plan, segment: Segment) -> int:
    """Return the pipeline stage of a segment that computes on it, or of the forward segment it mirrors."""
    if segment.phase is Phase.BACKWARD and not segment.mirror:
        return -1
    mirrored = plan.segments.get(segment.mirror)
    return segment.pipeline_stage if segment.pipeline_stage >= 0 or mirrored is None else mirrored.pipeline_stage


def _place(plan: Plan, segment: Segment) -> Location:
    return segment.operators[0].source or Location(plan.path, pointer=f"segment {segment.name}/operator 0")
