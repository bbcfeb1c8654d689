"""The greatest or least elements along a dimension, of which nothing reads where they are.

`max(x, dim)` gives the greatest elements and their places, `amax(x, dim)` the greatest elements alone, which ranks that hold
parts of the dimension can complete. The gradient of `max` goes to one of several equal elements and that of `amax` to all of
them, so that one through which a gradient goes is left as it is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tvlint.analyses.dataflow.def_use import names_of, uses, writes
from tvlint.ir.operators import Backward, Compute, Literal, Operator
from tvlint.ir.plan import Plan, Segment
from tvlint.ops.spec import Trait
from tvlint.ops.spelling import without_overload
from tvlint.ops.table import canonical_name, has_trait

_ALONG = ("dim", "axis")


def without_unread_places(plan: Plan) -> Plan:
    """Return the plan with `amax` for `max`, and `amin` for `min`, whose places nothing reads; itself where it has none."""
    operators = list(plan.operators())
    if not any(_gives_places(operator) for operator in operators):
        return plan
    read = {name for operator in operators for name in (*uses(operator), *_backwards(operator))}.union(plan.outputs)
    steps = list(plan.steps())
    read.update(name for step in steps for name in (*(step.inputs or ()), *(step.outputs or ())))
    renamed = {step.segment for step in steps if step.outputs is not None}
    segments = {}
    for name, segment in plan.segments.items():
        kept = read.union(segment.inputs, segment.outputs if name in renamed else ())
        segments[name] = _without(segment, kept)
    if segments == dict(plan.segments):
        return plan
    gone = {name for operator in operators if _gives_places(operator) for name in writes(operator)[1:]}
    gone -= {name for segment in segments.values() for operator in segment.operators for name in names_of(operator)}
    return replace(plan, segments=segments, tensors={name: tensor for name, tensor in plan.tensors.items() if name not in gone})


def _gives_places(operator: Operator) -> bool:
    """Return whether an operator gives places as well: `max` along a dimension does, and `amax` does not."""
    if not isinstance(operator, Compute) or len(operator.outputs) != 2 or operator.in_place:
        return False
    is_along = not operator.attributes.keys().isdisjoint(_ALONG) or isinstance(next(iter(operator.inputs[1:]), None), Literal)
    name = without_overload(operator.op).rpartition(".")[-1]
    return is_along and has_trait(operator.op, Trait.PEAK) and name != canonical_name(operator.op)


def _backwards(operator: Operator) -> tuple[str, ...]:
    return operator.forward.outputs if isinstance(operator, Backward) else ()


def _without(segment: Segment, read: Collection[str]) -> Segment:
    operators, gone = list[Operator](), set[str]()
    for operator in segment.operators:
        if isinstance(operator, Compute) and _gives_places(operator) and operator.outputs[1] not in read:
            gone.add(operator.outputs[1])
            operator = replace(operator, op=canonical_name(operator.op), outputs=operator.outputs[:1])
        operators.append(operator)
    outputs = tuple(name for name in segment.outputs if name not in gone)
    return segment if not gone else replace(segment, operators=tuple(operators), outputs=outputs)
