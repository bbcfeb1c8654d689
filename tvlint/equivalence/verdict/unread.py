"""What a pass that writes operators in the place of others leaves unread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.ir.operators import Backward, Communicate, Compute, Operator
from tvlint.ir.plan import GIVEN, Plan, Segment


def times_written(plan: Plan) -> Counter[str]:
    """Return how many values each name has: one that is there before the step, and those that operators make."""
    times = Counter(name for name, tensor in plan.tensors.items() if tensor.role in GIVEN)
    times.update(name for each in plan.operators() for name in writes(each))
    return times


def times_used(plan: Plan) -> Counter[str]:
    """Return how many values each name has, those through which a gradient goes twice."""
    times = times_written(plan)
    for operator in plan.operators_of(Backward):
        times.update(operator.forward.outputs)
    return times


def without_unread(plan: Plan, segment: Segment, operators: list[Operator], names: Collection[str]) -> tuple[Segment, set[str]]:
    """Return the segment with these operators, without those that make only such of the names as nothing reads, and these."""
    others = (each for other in plan.segments.values() if other is not segment for each in other.operators)
    read = Counter(plan.outputs)
    read.update(name for operator in (*operators, *others) for name in reads(operator))
    if any(step.outputs is not None for step in plan.steps()):
        read.update(segment.outputs)
    kept, gone = list[Operator](), set[str]()
    for operator in reversed(operators):
        made = writes(operator) if isinstance(operator, Compute | Communicate) else ()
        if made and all(name in names for name in made) and not any(map(read.get, made)):
            read.subtract(reads(operator))
            gone.update(made)
        else:
            kept.append(operator)
    outputs = tuple(name for name in segment.outputs if name not in gone)
    return replace(segment, outputs=outputs, operators=tuple(reversed(kept))), gone
