"""Abstract interpretation of a plan that speaks in mesh axes: how every local tensor lies on every axis.

Trusted are the declared placements of weights, buffers, inputs and states. Everything else is derived by the operators'
annotations; where they give nothing, it lies as the plan declares it, and where that says nothing either, it is unknown, and no
rule speaks of it.
"""

from __future__ import annotations

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.communicate import communicate, receive, send
from tvlint.analyses.placement.domain import Defect, Placed, Shuffled, Where
from tvlint.analyses.placement.forward import compute
from tvlint.analyses.placement.state import Walk
from tvlint.ir.operators import Communicate, Compute, Operator, Receive, Send
from tvlint.ir.plan import Role, Segment, Step


def defects(facts: Facts) -> tuple[Defect, ...]:
    """Return what is wrong with the placements of the plan; computed once."""
    return facts.derived("placement defects", lambda: _defects(facts))


def _defects(facts: Facts) -> tuple[Defect, ...]:
    if not any(tensor.placements is not None or tensor.role is Role.STATE for tensor in facts.plan.tensors.values()):
        return ()
    sent: dict[Where, Placed] = {}
    found: dict[tuple[str, Where, str], Defect] = {}
    for _ in range(min(len(facts.plan.programs), 64) + 1):
        before = len(sent)
        found = {}
        for program in facts.plan.programs:
            walk = Walk(facts, program, sent)
            _run(walk)
            for defect in walk.found:
                found.setdefault((defect.rule, defect.where, defect.axis), defect)
        if len(sent) == before:
            break
    return tuple(found.values())


def _run(walk: Walk) -> None:
    """The first run of every segment."""
    done: set[str] = set()
    for step in walk.program.steps:
        segment = walk.plan.segments.get(step.segment)
        if segment is None or step.segment in done:
            continue
        done.add(step.segment)
        _segment(walk, step, segment)
    _ends(walk)


def _segment(walk: Walk, step: Step, segment: Segment) -> None:
    inputs, outputs = step.outside(segment)
    for inner, outer in zip(segment.inputs, inputs, strict=False):
        if inner != outer and outer in walk.values:
            walk.values[inner] = walk.values[outer]
    for index, operator in enumerate(segment.operators):
        walk.where = (segment.name, index)
        _operator(walk, operator)
    for inner, outer in zip(segment.outputs, outputs, strict=False):
        if inner != outer and inner in walk.values:
            walk.values[outer] = walk.values[inner]


def _operator(walk: Walk, operator: Operator) -> None:
    if isinstance(operator, Compute):
        compute(walk, operator)
    elif isinstance(operator, Communicate):
        communicate(walk, operator)
    elif isinstance(operator, Send):
        send(walk, operator)
    elif isinstance(operator, Receive):
        receive(walk, operator)


def _ends(walk: Walk) -> None:
    """Say which outputs hold the pieces of a dimension in another order."""
    for name in walk.plan.outputs:
        value, tensor = walk.values.get(name), walk.plan.tensors.get(name)
        if value is None or name not in walk.producer or (tensor is not None and tensor.placements is not None):
            continue
        walk.where = walk.producer[name]
        for axis in walk.axes:
            if isinstance(value.on.get(axis), Shuffled):
                walk.say("pieces-not-in-rank-order", name, axis, "output", "in order")
