"""What one operator touches, and with whom it communicates."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, TypeAlias, TypeVar

from tvlint.certificate.tables import Rejected
from tvlint.ir.operators import (
    Backward,
    Collective,
    Communicate,
    Compute,
    Group,
    Operator,
    Peer,
    Receive,
    ReduceGradients,
    Send,
    Update,
)
from tvlint.ir.plan import Plan, Role

T = TypeVar("T")

Flown: TypeAlias = "tuple[str, int]"
"""What is under way: its handle, and the micro-batch of the step that started it."""


class Meeting(NamedTuple):
    """Where a communication meets its counterparts, which of its ends this is, and the ranks that take part."""

    key: Hashable
    end: Hashable
    members: tuple[int, ...]


def meeting_of(plan: Plan, own: Operator, rank: int) -> Meeting | None:
    """The communication of an operator on a rank; None where it has none, or falls off its axis."""
    if isinstance(own, Send | Receive):
        peer = peer_of(plan, own.peer, rank)
        if peer is None:
            return None
        ends = (rank, peer) if isinstance(own, Send) else (peer, rank)
        if not set(ends).issubset(_declared(plan, own.communicator, rank, ends)):
            raise Rejected(f"a message goes by `{own.communicator}` between ranks that it does not have")
        return Meeting((ends, own.communicator), isinstance(own, Send), ends)
    if isinstance(own, ReduceGradients) or (isinstance(own, Communicate) and own.kind is not Collective.CHUNK):
        members = members_of(plan, own.group, rank)
        if members != _declared(plan, own.group.name, rank, members):
            raise Rejected(f"ranks communicate by `{own.group.name}` that it does not have")
        return Meeting((members, own.group.name, spans_replicas(plan, own.group)), rank, members)
    return None


def taken(under_way: dict[Flown, T], handle: str, micro_batch: int) -> T | None:
    """What a wait ends: what has the handle in its own micro-batch, else in the one that started it first."""
    key = (handle, micro_batch)
    if key not in under_way:
        key = next((own for own in under_way if own[0] == handle), key)
    return under_way.pop(key, None)


def weights_of_gradients(plan: Plan) -> dict[str, str]:
    """The weight that each gradient of one is declared to be of."""
    pairs = (pair for own in plan.tensors.values() for pair in ((own.gradient, own.name), (own.name, own.gradient_of)))
    found: dict[str, str] = {}
    for name, of in pairs:
        if name and of in plan.tensors and plan.tensors[of].role is Role.WEIGHT and found.setdefault(name, of) != of:
            raise Rejected(f"`{name}` is declared to be the gradient of `{found[name]}` and of `{of}`")
    return found


def touched(own: Operator) -> tuple[set[str], set[str]]:
    """The names that an operator reads and writes."""
    if isinstance(own, Compute):
        reads = {name for name in own.inputs if isinstance(name, str)}
        return reads, {*own.outputs, *(reads if own.in_place else ())}
    if isinstance(own, Backward):
        reads = {name for name in own.forward.inputs if isinstance(name, str)}
        return {*own.inputs, *own.forward.outputs, *reads} - {""}, set(own.outputs) - {""}
    if isinstance(own, Communicate):
        return set(own.inputs), set(own.outputs)
    if isinstance(own, Send):
        return {own.tensor}, set()
    if isinstance(own, Receive):
        return set(), {own.tensor}
    names = set(own.weights) if isinstance(own, ReduceGradients | Update) else set[str]()
    return names, names


def members_of(plan: Plan, group: Group, rank: int) -> tuple[int, ...]:
    """The ranks of a group as `rank` sees it, in its own replica."""
    group = _named(plan, group)
    if group.ranks:
        return tuple(sorted(set(group.ranks)))
    if not group.axes and group.name:
        raise Rejected(f"the plan does not say which ranks the group `{group.name}` has")
    if any(axis not in {own.name for own in plan.mesh.axes} for axis in group.axes):
        raise Rejected(f"a group lies along an axis that the mesh does not have: {', '.join(group.axes)}")
    return plan.mesh.along(rank, tuple(axis for axis in group.axes if not _folded(plan, axis)))


def _declared(plan: Plan, name: str, rank: int, members: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks of a communicator that is declared under a name, and `members` where none is."""
    group = next((own for own in plan.communicators if name and own.name == name), None)
    return members if group is None else members_of(plan, group, rank)


def spans_replicas(plan: Plan, group: Group) -> bool:
    """Whether the group goes along the axis on which replicas are folded."""
    return any(_folded(plan, axis) for axis in _named(plan, group).axes)


def _named(plan: Plan, group: Group) -> Group:
    if group.ranks or group.axes or not group.name:
        return group
    return next((own for own in plan.communicators if own.name == group.name), group)


def _folded(plan: Plan, axis: str) -> bool:
    return plan.replication.count > 1 and axis == plan.replication.axis


def peer_of(plan: Plan, peer: Peer, rank: int) -> int | None:
    """The rank at the other end; None where the axis ends."""
    if peer.rank is not None:
        return peer.rank
    own, size = plan.mesh.coordinates(rank), plan.mesh.axis_size(peer.axis)
    if peer.axis not in own:
        raise Rejected(f"a message goes along `{peer.axis}`, which is no axis of the mesh")
    if _folded(plan, peer.axis):
        raise Rejected(f"a message goes along `{peer.axis}`, on which replicas are folded")
    at = (own[peer.axis] + peer.offset) % size if peer.wrap else own[peer.axis] + peer.offset
    return plan.mesh.rank({**own, peer.axis: at}) if 0 <= at < size else None
