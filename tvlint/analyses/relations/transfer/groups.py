"""Who communicates with whom."""

from __future__ import annotations

from tvlint.ir.operators import Communicate, Group, Operator, Peer, Receive, ReduceGradients, Send
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
    """Return whether the group goes along the axis on which replicas are folded."""
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


def not_of_communicator(plan: Plan) -> str:
    """A communicator that the plan declares and by which it communicates with other ranks than it has; empty where none is."""
    known = {own.name: own for own in plan.communicators if own.name}
    for program in plan.programs if known else ():
        for segment in {step.segment for step in program.steps}:
            for own in plan.segments[segment].operators:
                name, whom = communicator_of(own)
                if name in known and not all(_has(plan, known[name], whom, rank) for rank in program.ranks):
                    return name
    return ""


def communicator_of(operator: Operator) -> tuple[str, Group | Peer]:
    """Return the communicator that an operator names, and with whom it communicates by it."""
    if isinstance(operator, Communicate | ReduceGradients):
        return operator.group.name, operator.group
    return (operator.communicator, operator.peer) if isinstance(operator, Send | Receive) else ("", Group())


def _has(plan: Plan, communicator: Group, whom: Group | Peer, rank: int) -> bool:
    members = members_of(plan, communicator, rank)
    if isinstance(whom, Peer):
        peer = peer_of(plan, whom, rank)
        return peer is None or {rank, peer}.issubset(members)
    return members == members_of(plan, whom, rank) and spans_replicas(plan, communicator) == spans_replicas(plan, whom)
