"""Values of unknown placement that differ between the ranks of an axis.

Where a known operator reads values that differ, so does what it gives, until a collective over the axis makes it one. Of such a
value the placement may be unknown, but a weight that all ranks share must not be updated with it. An operator that is unknown
may communicate: of what it gives nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.placement.domain import is_whole
from tvlint.analyses.placement.state import Walk
from tvlint.ir.operators import Backward, Collective, Communicate, Compute, Operator, Receive
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait, row_of


def differing(walk: Walk, name: str) -> frozenset[str]:
    """The axes over which `name` is known to differ between ranks."""
    on = walk.value(name).on
    found = set(walk.varying.get(name, ()))
    for axis in walk.axes:
        placement = on.get(axis)
        if placement is not None:
            (found.discard if is_whole(placement) else found.add)(axis)
    return frozenset(found)


def unexplained(walk: Walk, name: str) -> frozenset[str]:
    """The axes over which `name` differs and nothing was found wrong yet, which would be why its placement is unknown."""
    return differing(walk, name) - {defect.axis for defect in walk.found}


def follow(walk: Walk, operator: Operator, joined: Iterable[str]) -> None:
    """Notes over which axes the results of an operator differ; `joined` are gradients that it only adds to."""
    results = writes(operator)
    if not results or isinstance(operator, Receive):
        return
    before = {name: walk.varying.get(name, frozenset()) for name in joined}
    differ: frozenset[str] = frozenset()
    for name in reads(operator):
        if not (isinstance(operator, Backward) and name in operator.forward.inputs and name not in operator.inputs):
            differ |= differing(walk, name)
    if isinstance(operator, Communicate) and operator.kind is not Collective.ALL_TO_ALL:
        axes = walk.axes_of(operator.group)
        differ = frozenset() if axes is None else differ - frozenset(axes)
    if isinstance(operator, Compute) and (has_trait(operator.op, Trait.FILLED) or row_of(operator.op) is None):
        differ = frozenset()
    for name in results:
        walk.varying[name] = differ | before.get(name, frozenset())
