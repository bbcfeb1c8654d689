"""Follow the values of a segment to their readers."""

from __future__ import annotations

from collections.abc import Collection

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.placement.state import Walk
from tvlint.ir.operators import Communicate, Send


def sent_on(walk: Walk, names: Collection[str], axis: str = "") -> bool:
    """Return whether what the present operator makes, `names`, or anything made from it, goes into a collective (over `axis`,
    where it is given), into a message, or out of the segment with other operators to come.
    """
    segment = walk.plan.segments[walk.where[0]]
    reached = set(names)
    for operator in segment.operators[walk.where[1] + 1 :]:
        if not reached.intersection(reads(operator)):
            continue
        if isinstance(operator, Send):
            return True
        if isinstance(operator, Communicate):
            axes = walk.axes_of(operator.group)
            if not axis or axes is None or axis in axes:
                return True
        reached.update(writes(operator))
    leaves = reached.intersection(segment.outputs) - set(walk.plan.outputs)
    return any(leaves.intersection(other.inputs) for name, other in walk.plan.segments.items() if name != segment.name)
