"""All-reduces of gradients that are accumulated over micro-batches, as the reducers that they are.

A gradient of a weight adds up over the micro-batches of a rank. An all-reduce that replaces it once a step is a gradient
reducer: that of an embedding which the first and the last stage share, or of weights that ranks replicate. A segment that
runs once per micro-batch cannot say so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tvlint.ir.operators import Await, Collective, Communicate, Operator, Record, ReduceGradients, Update, Wait
from tvlint.ir.plan import Phase, Plan, Role, Segment, Step

_ENDS = ReduceGradients | Update | Wait | Record | Await


def replaces_gradients(operator: Operator, gradients: Collection[str]) -> bool:
    """Return whether the operator is an all-reduce that leaves the sum or mean of gradients, all in `gradients`, in their
    place.
    """
    return (
        isinstance(operator, Communicate)
        and operator.kind is Collective.ALL_REDUCE
        and operator.reduce in ("", "sum", "avg")
        and not operator.dtype
        and operator.inputs == operator.outputs
        and bool(operator.inputs)
        and all(name in gradients for name in operator.inputs)
    )


def with_reducers(plan: Plan) -> Plan:
    """`plan`, the all-reduces of accumulated gradients as gradient reducers; as it is where not all of them can be that."""
    if plan.micro_batches == 1:
        return plan
    owners: dict[str, list[str]] = {}
    for tensor in plan.tensors.values():
        if tensor.role is Role.WEIGHT and tensor.gradient:
            owners.setdefault(tensor.gradient, []).append(tensor.name)
    weight_of = {gradient: names[0] for gradient, names in owners.items() if len(names) == 1}
    found = {
        name for name, segment in plan.segments.items()
        if any(replaces_gradients(operator, weight_of) for operator in segment.operators)
    }  # fmt: skip
    if not found or not all(_at_the_end(plan, plan.segments[name], weight_of) for name in found):
        return plan
    segments = {name: _reducing(segment, weight_of) if name in found else segment for name, segment in plan.segments.items()}
    programs = tuple(
        replace(
            program,
            steps=tuple(Step(step.segment, source=step.source) if step.segment in found else step for step in program.steps),
        )
        for program in plan.programs
    )
    return replace(plan, segments=segments, programs=programs)


def _at_the_end(plan: Plan, segment: Segment, weight_of: Mapping[str, str]) -> bool:
    """Return whether the segment only reduces and updates, and no rank runs it more than once."""
    if not all(isinstance(operator, _ENDS) or replaces_gradients(operator, weight_of) for operator in segment.operators):
        return False
    if segment.mirror or any(each_segment.mirror == segment.name for each_segment in plan.segments.values()):
        return False
    for program in plan.programs:
        runs = [step for step in program.steps if step.segment == segment.name]
        if len(runs) > 1 or any(step.inputs is not None or step.outputs is not None for step in runs):
            return False
    return all(name in weight_of for name in (*segment.inputs, *segment.outputs))


def _reducing(segment: Segment, weight_of: Mapping[str, str]) -> Segment:
    operators: list[Operator] = []
    for operator in segment.operators:
        if isinstance(operator, Communicate):
            weights = tuple(weight_of[name] for name in operator.inputs)
            how = operator.reduce or "sum"
            operators.append(
                ReduceGradients(
                    weights,
                    operator.group,
                    how,
                    1,
                    False,
                    False,
                    operator.handle,
                    operator.stream,
                    operator.source,
                    operator.label,
                )
            )
        else:
            operators.append(operator)
    phase = segment.phase if segment.phase is Phase.OPTIMIZER else Phase.REDUCE
    return replace(segment, phase=phase, inputs=(), outputs=(), operators=tuple(operators))
