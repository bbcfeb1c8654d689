"""Plans without what a change of them has left behind unused, which alone would keep a plan from being proved."""

from __future__ import annotations

from dataclasses import replace

from tvlint.equivalence.side_conditions.unused_declarations import unused_tensors
from tvlint.ir.plan import Plan, Role


def in_use(plan: Plan) -> Plan:
    """Return the plan without the segments that no program runs and the tensors, but inputs, that nothing names."""
    run = {step.segment for program in plan.programs for step in program.steps}
    plan = replace(plan, segments={name: segment for name, segment in plan.segments.items() if name in run})
    while idle := {tensor.name for tensor in unused_tensors(plan).values() if tensor.role is not Role.INPUT}:
        kept = {name: tensor for name, tensor in plan.tensors.items() if name not in idle}
        lost = (name for name, tensor in kept.items() if tensor.gradient_of in idle)
        plan = replace(plan, tensors=kept | {name: replace(kept[name], gradient_of="") for name in lost})
    return plan
