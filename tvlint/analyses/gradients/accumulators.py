"""The names under which the gradients of weights add up."""

from __future__ import annotations

from tvlint.analyses.dataflow.def_use import writes
from tvlint.analyses.gradients.lifecycle import weight_gradients
from tvlint.ir.plan import Plan


def accumulators(plan: Plan) -> dict[str, str]:
    """Return the weight of each name under which a gradient adds up.

    Where the plan makes what a weight names as its gradient, that is the one name; what is else made of gradients of the weight
    (an addend, a reduced shard, a clipped gradient) is a value of its own.
    """
    owners = weight_gradients(plan)
    made = {name for segment in plan.segments.values() for own in segment.operators for name in writes(own)}
    chosen = {owner: plan.tensors[owner].gradient for owner in owners.values()}
    return {name: owner for name, owner in owners.items() if chosen[owner] in (name, "") or chosen[owner] not in made}
