"""Tensors of a plan of nnScaler: a pickle holds more of them than run, those between the steps of an adapter among them."""

from __future__ import annotations

from dataclasses import replace

from tvlint.analyses.dataflow.def_use import names_in
from tvlint.ir.plan import Plan


def with_named_tensors(plan: Plan) -> Plan:
    """Return the plan with the tensors that operators, runs, signatures of segments or results name."""
    named = {*plan.outputs, *names_in(plan)}
    for segment in plan.segments.values():
        named.update(segment.inputs, segment.outputs)
    for step in plan.steps():
        named.update(step.inputs or (), step.outputs or ())
    return replace(plan, tensors={name: tensor for name, tensor in plan.tensors.items() if name in named})
