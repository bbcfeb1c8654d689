"""Over which axes a plan itself says that the gradients it leaves behind are those that weights are stepped with.

A plan may stop after backward: the loop around it then reduces the gradients. It may as well reduce them and leave only the
step to that loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.def_use import reads
from tvlint.analyses.dataflow.facts import Facts, once_per_plan
from tvlint.analyses.dataflow.mesh_axes import DATA_AXES
from tvlint.analyses.gradients.lifecycle import owners_of_gradients
from tvlint.analyses.gradients.optimizer_updates import weights_updated
from tvlint.ir.operators import SUMS, Communicate, Group, ReduceGradients
from tvlint.ir.plan import Phase, Plan


@once_per_plan
def final_axes(facts: Facts) -> frozenset[str]:
    """Return the axes over which no gradient of a weight may stay partial.

    All of them where the plan steps weights, has a reduce or optimizer segment, or adds up gradients of weights over ranks
    with data of their own; else those over which it adds up the gradient of some weight.
    """
    plan = facts.plan
    every = frozenset(axis.name for axis in plan.mesh.axes)
    if _ends_the_step(facts):
        return every
    reduced = frozenset(axis for group in _reduced_over(facts) for axis in axes_apart(facts, group))
    return every if reduced & DATA_AXES else reduced


def _run(plan: Plan) -> Iterator[str]:
    steps = dict.fromkeys(step.segment for step in plan.steps())
    yield from (name for name in steps if name in plan.segments)


def _ends_the_step(facts: Facts) -> bool:
    plan = facts.plan
    for name in _run(plan):
        segment = plan.segments[name]
        if segment.phase in (Phase.REDUCE, Phase.OPTIMIZER) and segment.operators:
            return True
        if any(isinstance(operator, ReduceGradients) for operator in segment.operators):
            return True
    return not weights_updated(facts).isdisjoint(owners_of_gradients(facts).values())


def _reduced_over(facts: Facts) -> Iterator[Group]:
    plan, owners = facts.plan, owners_of_gradients(facts)
    for name in _run(plan):
        for operator in plan.segments[name].operators:
            if isinstance(operator, Communicate) and operator.kind in SUMS and not owners.keys().isdisjoint(reads(operator)):
                yield operator.group


def axes_apart(facts: Facts, group: Group) -> frozenset[str]:
    """Return the axes along which the ranks of `group` lie apart."""
    group, mesh = facts.plan.declared(group), facts.plan.mesh
    coordinates = [mesh.coordinates(rank) for rank in set(group.ranks) if rank < mesh.size]
    return frozenset(group.axes) | {axis.name for axis in mesh.axes if len({each[axis.name] for each in coordinates}) > 1}
