"""Tell the runs of a micro-batch from those of the whole training step."""

from __future__ import annotations

from tvlint.ir.operators import Await, Record, ReduceGradients, Update, Wait
from tvlint.ir.plan import Phase, Plan, Segment

_ENDS = ReduceGradients | Update | Wait | Record | Await


def micro_batches_of(plan: Plan) -> int:
    """Return how many micro-batches the plan runs, counted from its steps."""
    found = {step.micro_batch for step in plan.steps() if step.micro_batch >= 0}
    return max(1, len(found))


def only_ends(segment: Segment) -> bool:
    """Return whether the segment only reduces what micro-batches add up to, updates, and waits."""
    once = segment.phase in (Phase.REDUCE, Phase.OPTIMIZER)
    return once and all(isinstance(operator, _ENDS) for operator in segment.operators)
