"""Transfer placements through collectives and messages."""

from __future__ import annotations

from math import prod

from tvlint.analyses.communication.calls import Call
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.collective_transfer import after, faulty_splits
from tvlint.analyses.placement.domain import On, Placed, Where
from tvlint.analyses.placement.piece_order import strided
from tvlint.analyses.placement.state import UNKNOWN, Walk
from tvlint.ir.operators import Collective, Communicate, Receive, Send
from tvlint.ir.placement import Partial, Replicate, Shard

_SUMS = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)


def communicate(walk: Walk, operator: Communicate) -> None:
    """Places the results of one collective."""
    axes = walk.axes_of(operator.group)
    for source, name in zip(operator.inputs, operator.outputs, strict=False):
        if operator.kind is Collective.BARRIER:
            continue
        value = walk.value(source)
        tensor = walk.plan.tensors.get(source)
        rank = len(tensor.shape) if tensor is not None else 0
        on: dict[str, On] = {} if axes is None else dict(value.on)
        if operator.kind is Collective.ALL_TO_ALL and axes is not None and tensor is not None:
            members = prod(walk.plan.mesh.axis_size(axis) for axis in axes)
            fault = faulty_splits(operator, tensor.shape, members) if members > 1 else ""
            if fault:
                walk.say("wrong-all-to-all-splits", source, axes[0] if axes else "", operator.kind.value, fault)
        for axis in axes or ():
            if axis not in walk.axes:
                continue
            on[axis], rule = after(operator, value.on.get(axis), rank, walk.plan.mesh.axis_size(axis))
            if on[axis] is None and not rule and value.on.get(axis) is not None and operator.kind in _SUMS:
                on = {}
                break
            if rule:
                walk.say(rule, source, axis, operator.kind.value, operator.reduce or "sum")
        on.update(strided(walk, operator, source, axes or ()))
        origin = {axis: place for axis, place in value.origin.items() if isinstance(on.get(axis), Partial)}
        walk.store(name, on, origin)
    for name in operator.outputs[len(operator.inputs) :]:
        walk.store(name, {axis: Replicate() for axis in axes or ()} if operator.kind is Collective.BROADCAST else {}, {})


def send(walk: Walk, operator: Send) -> None:
    """Keep how the sent value lies for whoever receives it; along an axis that it crosses others have another part of it."""
    value = walk.value(operator.tensor)
    mesh, peer, crossed = walk.plan.mesh, operator.peer, {operator.peer.axis}
    if peer.rank is not None and max(peer.rank, walk.rank) < mesh.size:
        coordinates, other = mesh.coordinates(walk.rank), mesh.coordinates(peer.rank)
        crossed = {axis for axis in coordinates if coordinates[axis] != other[axis]}
    on = dict(value.on)
    for axis, placement in value.on.items():
        is_piece = isinstance(placement, Shard) and (axis in crossed or peer.rank is not None)
        if is_piece or (isinstance(placement, Partial) and axis in crossed):
            on[axis] = None
    if walk.where not in walk.sent or walk.sent[walk.where].on != on:
        walk.sent[walk.where] = Placed(on, value.origin)


def receive(walk: Walk, operator: Receive) -> None:
    """Places what is received as it lay where it was sent, or as it is declared."""
    call = _received_from(walk)
    value = UNKNOWN
    if call is not None:
        value = walk.sent.get((call.site.segment, call.site.index), UNKNOWN)
    tensor = walk.plan.tensors.get(operator.tensor)
    if not value.on and tensor is not None and tensor.placements is not None:
        value = Placed({axis: tensor.placements.get(axis, Replicate()) for axis in walk.axes})
    walk.store(operator.tensor, dict(value.on), dict(value.origin))


def _received_from(walk: Walk) -> Call | None:
    partners = walk.facts.derived("senders", lambda: _senders(walk.facts))
    return partners.get(walk.where)


def _senders(facts: Facts) -> dict[Where, Call]:
    found: dict[Where, Call] = {}
    for _, receives in facts.traffic.channels.values():
        for call in receives:
            if call.partner is not None:
                found.setdefault((call.site.segment, call.site.index), call.partner)
    return found
