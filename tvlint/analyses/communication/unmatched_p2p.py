"""Sends and receives that have no counterpart, once per operator."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator

from tvlint.analyses.communication.calls import Call, Site, location_of, traffic
from tvlint.analyses.dataflow.facts import Facts, once_per_plan
from tvlint.findings import Related
from tvlint.ir.operators import Receive, Send
from tvlint.ir.ranks import describe
from tvlint.rule import Sighting

_ANY = "any"


@once_per_plan
def _loose(facts: Facts) -> tuple[list[Call], list[Call]]:
    """Return the sends and the receives that are left over."""
    channels = traffic(facts).channels.values()
    outside = [call for call in traffic(facts).outside if isinstance(call.operator, Send | Receive)]
    calls = ([call for pair in channels for call in pair[at]] for at in (0, 1))
    kinds = ([call for call in outside if isinstance(call.operator, kind)] for kind in (Send, Receive))
    sends, receives = ([call for call in (*one, *more) if call.partner is None] for one, more in zip(calls, kinds, strict=True))
    return sends, receives


@once_per_plan
def _meant(facts: Facts) -> dict[int, Call]:
    """Return the receives that are left over and seem to be those of sends that are, of one end at least, and those sends.

    Both are of one type, as far as types are known, and none is of a rank to itself.
    """
    sends, receives = _loose(facts)
    waiting: dict[tuple[object, ...], deque[Call]] = {}
    for receive in receives:
        ends = [("to", receive.rank), *([("from", _target(receive))] if _target(receive) != receive.rank else [])]
        for key in ((*end, kind) for end in ends for kind in (_type_of(facts, receive), _ANY)):
            waiting.setdefault(key, deque()).append(receive)
    found = dict[int, Call]()
    for send in sends:
        kinds = (_ANY,) if _type_of(facts, send) is None else (_type_of(facts, send), None)
        ends = [*([("to", _target(send))] if _target(send) != send.rank else []), ("from", send.rank)]
        queues = (waiting.get((*end, kind), deque()) for end in ends for kind in kinds)
        meant = next((receive for queue in queues for receive in _first_left(queue, found)), None)
        if meant is not None:
            found |= {id(meant): send, id(send): meant}
    return found


def _type_of(facts: Facts, call: Call) -> tuple[object, ...] | None:
    """Return the shape and dtype of what a message carries; None where they are not known."""
    tensor = facts.plan.tensors.get(call.operator.tensor) if isinstance(call.operator, Send | Receive) else None
    return None if tensor is None else (tensor.shape, tensor.dtype)


def _first_left(queue: deque[Call], taken: Container[int]) -> Iterator[Call]:
    """Yield the first call of the queue that is not taken; those before it leave the queue."""
    while queue and id(queue[0]) in taken:
        queue.popleft()
    yield from [queue[0]] if queue else []


def unmatched(facts: Facts, kind: type[Send] | type[Receive]) -> Iterator[Sighting]:
    """Yield the sends (or receives) that are left over, one per operator, without receives that such a send is meant for."""
    loose: dict[Site, list[Call]] = {}
    for call in _loose(facts)[0 if kind is Send else 1]:
        if kind is Send or id(call) not in _meant(facts):
            loose.setdefault(call.site, []).append(call)
    for site, found in loose.items():
        assert isinstance(site.operator, (Send, Receive))
        ranks = tuple(sorted({call.rank for call in found}))
        peers = {_target(call) for call in found}
        runs = [call.micro_batch for call in found if call.rank == ranks[0] and call.micro_batch >= 0]
        times = f" for micro-batch {', '.join(map(str, runs[:4]))}" if runs and facts.plan.micro_batches > 1 else ""
        related, hint = _crossing(facts, found[0])
        place = facts.place(site.segment, site.index, site.operator)
        words = {
            "tensor": site.operator.tensor, "end": _other_end(facts, site.operator, peers), "ranks": facts.who(ranks),
            "times": times, "hint": hint,
        }  # fmt: skip
        yield Sighting(place, facts.fold.everywhere(ranks), words, related, (site.operator.tensor,))


def _target(call: Call) -> int | None:
    if call.peer is not None:
        return call.peer
    assert isinstance(call.operator, (Send, Receive))
    return call.operator.peer.rank


def _other_end(facts: Facts, operator: Send | Receive, peers: set[int | None]) -> str:
    """Return where the other end of a message is, and what is missing there."""
    known = [rank for rank in peers if rank is not None]
    if not known:
        return f"no rank: `{operator.peer.axis}` ends there" if operator.peer.rank is None else "no rank of the plan"
    if any(facts.fold.representative(rank) is None for rank in known):
        return f"{describe(known)}, which the plan does not run"
    if any(facts.fold.program_of(rank) is None for rank in known):
        return f"{describe(known)}, which is in another replica"
    return f"{describe(known)}, but not {'received' if isinstance(operator, Send) else 'sent'} there"


def _crossing(facts: Facts, call: Call) -> tuple[tuple[Related, ...], str]:
    """Return which message seems to be meant instead, and where its other end is."""
    other = _meant(facts).get(id(call))
    if other is None:
        return (), "; behind the peer, `ring` lets the axis go on at its other end" if _target(call) is None else ""
    if (other.rank, _target(other)) == (_target(call), call.rank):
        text, hint = "its peer uses another tag or communicator here", "tags and communicators of both ends must be the same"
    else:
        source = "nowhere" if _target(other) is None else f"rank {_target(other)}"
        text, hint = (
            f"rank {other.rank} waits for a message from {source} here",
            "both ends of a message have to name each other",
        )
    return (Related(text, location_of(facts, other)),), f"; {hint}"
