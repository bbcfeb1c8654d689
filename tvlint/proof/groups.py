"""Who communicates with whom."""

from __future__ import annotations

from tvlint.ir.operators import Group, Peer
from tvlint.ir.plan import Plan


def members_of(plan: Plan, group: Group, rank: int) -> tuple[int, ...]:
    """The ranks of `group` as `rank` sees it, ascending; a rank that is written twice counts once.

    Of a group that spans replicas these are the members in the rank's own replica.
    """
    group = resolved(plan, group)
    if group.ranks:
        return tuple(sorted(set(group.ranks)))
    return plan.mesh.along(rank, tuple(axis for axis in group.axes if not _folded(plan, axis)))


def spans_replicas(plan: Plan, group: Group) -> bool:
    """Whether the group goes along the axis on which replicas are folded."""
    return any(_folded(plan, axis) for axis in resolved(plan, group).axes)


def resolved(plan: Plan, group: Group) -> Group:
    """The communicator that a group names without saying its ranks."""
    if group.ranks or group.axes or not group.name:
        return group
    return next((own for own in plan.communicators if own.name == group.name), group)


def _folded(plan: Plan, axis: str) -> bool:
    return plan.replication.count > 1 and axis == plan.replication.axis


def peer_of(plan: Plan, peer: Peer, rank: int) -> int | None:
    """The rank at the other end; None where the axis ends."""
    if peer.rank is not None:
        return peer.rank
    coordinates = plan.mesh.coordinates(rank)
    size = plan.mesh.axis_size(peer.axis)
    at = coordinates.get(peer.axis, 0) + peer.offset
    if peer.wrap:
        at %= size
    if not 0 <= at < size:
        return None
    return plan.mesh.rank({**coordinates, peer.axis: at})
