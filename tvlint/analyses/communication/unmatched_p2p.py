"""Sends and receives that have no counterpart, once per operator."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.calls import Call, Site, location_of, traffic
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Related
from tvlint.ir.operators import Receive, Send
from tvlint.ir.ranks import describe
from tvlint.rule import Sighting


def unmatched(facts: Facts, kind: type[Send] | type[Receive]) -> Iterator[Sighting]:
    """Yield the sends (or receives) that are left over, one per operator."""
    loose: dict[Site, list[Call]] = {}
    calls = [call for pair in traffic(facts).channels.values() for call in pair[0 if kind is Send else 1]]
    calls += [call for call in traffic(facts).outside if isinstance(call.operator, kind)]
    for call in calls:
        if call.partner is None:
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
    """Return what the peer does with the same rank instead: the same direction, another tag or communicator."""
    for (source, destination, _), (sends, receives) in traffic(facts).channels.items():
        ends = (call.rank, call.peer) if isinstance(call.operator, Send) else (call.peer, call.rank)
        if (source, destination) != ends:
            continue
        others = [other for other in (receives if isinstance(call.operator, Send) else sends) if other.partner is None]
        if others:
            text = "its peer uses another tag or communicator here"
            return (Related(text, location_of(facts, others[0])),), "; tags and communicators of both ends must be the same"
    return (), "; behind the peer, `ring` lets the axis go on at its other end" if _target(call) is None else ""
