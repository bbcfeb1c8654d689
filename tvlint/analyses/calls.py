"""What ranks say to each other: every communication in program order, paired with its counterparts."""

from __future__ import annotations

import gc
from collections import defaultdict
from dataclasses import dataclass, field

from tvlint.analyses.fold import Fold
from tvlint.ir.operators import Await, Collective, Communicate, Operator, Receive, Record, ReduceGradients, Send, Wait
from tvlint.ir.plan import Plan


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """One operator where it stands: segment and position; one object per place in the plan."""

    segment: str
    index: int
    operator: Operator


@dataclass(slots=True, eq=False)
class Call:
    """One run of a communication by one rank.

    `members` are the walked ranks of a collective's group and `meeting` is where they meet; `peer` is the walked rank at the
    other end of a send or receive and `partner` the call that it is paired with. `waits_for` is what a wait completes.
    """

    rank: int
    step: int
    micro_batch: int
    site: Site
    members: tuple[int, ...] = ()
    communicator: tuple[object, ...] = ()
    meeting: Meeting | None = None
    peer: int | None = None
    partner: Call | None = None
    waits_for: tuple[Call, ...] = ()

    @property
    def operator(self) -> Operator:
        """The operator that is run."""
        return self.site.operator

    @property
    def handle(self) -> str:
        """The handle that it completes through; empty when it completes in place."""
        operator = self.site.operator
        if isinstance(operator, (Communicate, Send, Receive, ReduceGradients)):
            return operator.handle
        return ""


@dataclass(slots=True, eq=False)
class Meeting:
    """The k-th collective on one communicator: the calls of its members, by rank."""

    communicator: tuple[object, ...]
    members: tuple[int, ...]
    calls: dict[int, Call] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """All communications of the walked ranks, paired."""

    calls: dict[int, list[Call]]
    meetings: dict[tuple[object, ...], list[Meeting]]
    channels: dict[tuple[int, int, str], tuple[list[Call], list[Call]]]
    """By (source, destination, communicator): the sends and the receives, each in program order."""
    outside: list[Call]
    """Sends and receives whose peer is no rank of the plan, and collectives whose own rank is not in their group."""


def sites_of(plan: Plan) -> dict[str, tuple[Site, ...]]:
    """The communications, waits and events of every segment."""
    return {
        name: tuple(
            Site(name, index, operator)
            for index, operator in enumerate(segment.operators)
            if isinstance(operator, (Communicate, Send, Receive, Wait, Record, Await, ReduceGradients))
            and not (isinstance(operator, Communicate) and operator.kind is Collective.CHUNK)
        )
        for name, segment in plan.segments.items()
    }


def traffic(plan: Plan, fold: Fold) -> Traffic:
    """Unrolls the communications of every walked rank and pairs them.

    The k-th send on a channel pairs with the k-th receive of the same tag; the k-th collective of each member on a
    communicator meets. The garbage collector is told to leave alone what exists by now: the plan lives on, and walking its
    millions of objects again and again would take longer than all checks.
    """
    gc.freeze()
    sites = sites_of(plan)
    found = Traffic({}, {}, {}, [])
    for rank in fold.present:
        index = fold.program_of(rank)
        if index is not None:
            found.calls[rank] = _unroll(plan, fold, sites, rank, index, found)
    _pair(found)
    return found


def _unroll(plan: Plan, fold: Fold, sites: dict[str, tuple[Site, ...]], rank: int, program: int, found: Traffic) -> list[Call]:
    calls: list[Call] = []
    groups: dict[Site, tuple[tuple[int, ...], tuple[object, ...]]] = {}
    peers: dict[Site, tuple[bool, int | None]] = {}
    turns: dict[tuple[object, ...], int] = defaultdict(int)
    open_handles: dict[str, list[Call]] = {}
    for number, step in enumerate(plan.programs[program].steps):
        for site in sites.get(step.segment, ()):
            call = Call(rank, number, step.micro_batch, site)
            operator = site.operator
            if isinstance(operator, (Communicate, ReduceGradients)):
                if site not in groups:
                    groups[site] = (fold.members(operator.group, rank), fold.communicator(operator.group, rank))
                call.members, call.communicator = groups[site]
                if rank not in call.members:
                    found.outside.append(call)
                else:
                    _meet(fold, call, turns, found)
            elif isinstance(operator, (Send, Receive)):
                if site not in peers:
                    target = fold.peer(operator.peer, rank)
                    peers[site] = (target is not None, None if target is None else fold.representative(target))
                exists, call.peer = peers[site]
                if not exists:
                    continue
                if call.peer is None:
                    found.outside.append(call)
                else:
                    ends = (rank, call.peer) if isinstance(operator, Send) else (call.peer, rank)
                    channel = found.channels.setdefault((*ends, operator.communicator), ([], []))
                    channel[0 if isinstance(operator, Send) else 1].append(call)
            elif isinstance(operator, Wait):
                call.waits_for = _resolve(open_handles.get(operator.handle, []), step.micro_batch)
            if call.handle:
                open_handles.setdefault(call.handle, []).append(call)
            calls.append(call)
    return calls


def _resolve(issued: list[Call], micro_batch: int) -> tuple[Call, ...]:
    """The outstanding calls that a wait completes: those of its micro-batch, else the oldest."""
    if not issued:
        return ()
    chosen = [call for call in issued if call.micro_batch == micro_batch]
    if not chosen:
        step = issued[0].step
        chosen = [call for call in issued if call.step == step]
    for call in chosen:
        issued.remove(call)
    return tuple(chosen)


def _meet(fold: Fold, call: Call, turns: dict[tuple[object, ...], int], found: Traffic) -> None:
    meetings = found.meetings.setdefault(call.communicator, [])
    turn = turns[call.communicator]
    turns[call.communicator] = turn + 1
    if turn == len(meetings):
        meetings.append(Meeting(call.communicator, tuple(rank for rank in call.members if fold.representative(rank) == rank)))
    call.meeting = meetings[turn]
    meetings[turn].calls[call.rank] = call


def _pair(found: Traffic) -> None:
    for sends, receives in found.channels.values():
        by_tag: dict[int, list[Call]] = defaultdict(list)
        for call in reversed(receives):
            assert isinstance(call.operator, Receive)
            by_tag[call.operator.tag].append(call)
        for call in sends:
            assert isinstance(call.operator, Send)
            waiting = by_tag.get(call.operator.tag)
            if waiting:
                call.partner = waiting.pop()
                call.partner.partner = call
