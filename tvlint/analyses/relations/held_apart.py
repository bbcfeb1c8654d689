"""Values of unknown relation that each rank along an axis holds another of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tvlint.analyses.relations.derivation.state import Opaque
from tvlint.ir.placement import Shard
from tvlint.ir.plan import Plan, Role


class Numbers:
    """The numbers of values of unknown relation that ranks hold, by lines of ranks."""

    def __init__(self, plan: Plan, held: Mapping[int, Opaque | None]) -> None:
        self._mesh, self._held = plan.mesh, held
        self._lines: dict[tuple[str, int], Counter[int | None]] = {}

    def is_alone(self, rank: int, axis: str, number: int) -> bool:
        """Return whether all other ranks along an axis hold values of unknown relation, with other numbers."""
        first = self._mesh.first(rank, (axis,))
        if (axis, first) not in self._lines:
            held = (self._held.get(other) for other in self._mesh.along(rank, (axis,)))
            self._lines[axis, first] = Counter(None if opaque is None else opaque.number for opaque in held)
        counts = self._lines[axis, first]
        return counts[None] == 0 and counts[number] == 1


def axes_apart(plan: Plan, rank: int, opaque: Opaque | None, numbers: Numbers) -> Iterator[str]:
    """Yield the axes along which all ranks hold other values of unknown relation than a rank does."""
    if opaque is None:
        return
    if opaque.of_replica and plan.replication.count > 1:
        yield plan.replication.axis
    for axis in (axis.name for axis in plan.mesh.axes if axis.size > 1):
        if numbers.is_alone(rank, axis, opaque.number):
            yield axis


def is_split(plan: Plan, weight: str, axis: str) -> bool:
    """Return whether ranks along the axis hold other pieces of a weight or state, or it is not said by axes what they hold."""
    tensor = plan.tensors[weight]
    pieces = tensor.placements is None and tensor.region is not None
    return pieces or isinstance((tensor.placements or {}).get(axis), Shard) or tensor.role not in (Role.WEIGHT, Role.STATE)
