"""Communication of all ranks in program order, each call paired with its counterparts."""

from __future__ import annotations

from dataclasses import dataclass, field

from tvlint.analyses.communication.parting import left_over
from tvlint.analyses.dataflow.def_use import handle_of, of_kinds
from tvlint.analyses.dataflow.facts import Facts, once_per_plan
from tvlint.analyses.dataflow.representative_ranks import Fold
from tvlint.ir.location import Location
from tvlint.ir.operators import Await, Collective, Communicate, Group, Operator, Receive, Record, ReduceGradients, Send, Wait
from tvlint.ir.plan import Plan

_TALKING = frozenset({Communicate, Send, Receive, Wait, Record, Await, ReduceGradients})


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """One operator where it stands: segment and position; one object per place in the plan."""

    segment: str
    index: int
    operator: Operator
    handle: str
    """What it completes through; empty when it completes in place."""


@dataclass(slots=True, eq=False)
class Call:
    """One run of a communication by one rank.

    `members` are the visited ranks of a collective's group and `meeting` is where they meet; `peer` is the visited rank at the
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
        """Return the operator that is run."""
        return self.site.operator

    @property
    def handle(self) -> str:
        """Return the handle that it completes through; empty when it completes in place."""
        return self.site.handle


@dataclass(slots=True, eq=False)
class Meeting:
    """The k-th collective on one communicator: the calls of its members, by rank."""

    communicator: tuple[object, ...]
    members: tuple[int, ...]
    calls: dict[int, Call] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """All communications of the visited ranks, paired."""

    calls: dict[int, list[Call]]
    meetings: dict[tuple[object, ...], list[Meeting]]
    channels: dict[tuple[int, int, str], tuple[list[Call], list[Call]]]
    """By (source, destination, communicator): the sends and the receives, each in program order."""
    outside: list[Call]
    """Sends and receives whose peer is no rank of the plan, and collectives whose own rank is not in their group."""


def sites_of(plan: Plan) -> dict[str, tuple[Site, ...]]:
    """Return the communications, waits and events of every segment."""
    return {
        name: tuple(
            Site(name, index, operator, handle_of(operator))
            for index, operator in of_kinds(segment.operators, _TALKING)
            if not (isinstance(operator, Communicate) and operator.kind is Collective.CHUNK)
        )
        for name, segment in plan.segments.items()
    }


@once_per_plan
def traffic(facts: Facts) -> Traffic:
    """Unroll the communications of every representative rank and pair them.

    The k-th send on a channel pairs with the k-th receive of the same tag, but for those that one end has more; the k-th
    collective of each member on a communicator meets.
    """
    plan, fold = facts.plan, facts.fold
    sites = sites_of(plan)
    found, known = Traffic({}, {}, {}, []), _Known()
    for rank in fold.present:
        index = fold.program_of(rank)
        if index is not None:
            found.calls[rank] = _unroll(plan, fold, sites, rank, index, found, known)
    _pair(plan, found)
    return found


def messaged_axes(facts: Facts) -> frozenset[str]:
    """Return the axes along which a message goes from one rank to another."""
    mesh, found = facts.plan.mesh, set[str]()
    for source, target, _ in traffic(facts).channels:
        if max(source, target) < mesh.size and source != target:
            one, other = mesh.coordinates(source), mesh.coordinates(target)
            found.update(axis.name for axis in mesh.axes if one[axis.name] != other[axis.name])
    return frozenset(found)


def location_of(facts: Facts, call: Call) -> Location:
    """Return where the operator of `call` stands."""
    return facts.place(call.site.segment, call.site.index, call.operator)


def _unroll(
    plan: Plan, fold: Fold, sites: dict[str, tuple[Site, ...]], rank: int, program: int, found: Traffic, known: _Known
) -> list[Call]:
    calls: list[Call] = []
    places: dict[Site, _Place] = {}
    by_communicator: dict[_Communicator, _Place] = {}
    peers: dict[Site, int | None] = {}
    open_handles: dict[str, list[Call]] = {}
    for number, step in enumerate(plan.programs[program].steps):
        for site in sites.get(step.segment, ()):
            call = Call(rank, number, step.micro_batch, site)
            operator = site.operator
            if isinstance(operator, (Communicate, ReduceGradients)):
                place = places.get(site)
                if place is None:
                    communicator = _communicator(fold, operator.group, rank, known)
                    place = places[site] = by_communicator.setdefault(
                        communicator, _Place(communicator, rank in communicator.ranks)
                    )
                _meet(call, place, found)
            elif isinstance(operator, (Send, Receive)):
                if site not in peers:
                    target, is_given = fold.peer(operator.peer, rank), operator.peer.rank is not None
                    is_another_replica = is_given and target is not None and fold.program_of(target) is None
                    peers[site] = None if target is None or is_another_replica else fold.representative(target)
                call.peer = peers[site]
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
    """Return the outstanding calls that a wait completes: those of its micro-batch, else the oldest."""
    if not issued:
        return ()
    chosen = [call for call in issued if call.micro_batch == micro_batch]
    if not chosen:
        step = issued[0].step
        chosen = [call for call in issued if call.step == step]
    for call in chosen:
        issued.remove(call)
    return tuple(chosen)


@dataclass(frozen=True, slots=True, eq=False)
class _Communicator:
    """What its members agree on, those of them that are `visited`, and their meetings."""

    key: tuple[object, ...]
    members: tuple[int, ...]
    ranks: frozenset[int]
    visited: tuple[int, ...]
    meetings: list[Meeting] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Known:
    """The communicators that ranks have used, and those of groups that list their ranks by the identity of the group."""

    by_key: dict[tuple[object, ...], _Communicator] = field(default_factory=dict)
    listed: dict[int, _Communicator] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Place:
    """A rank's place on a communicator, and how often it has met the members."""

    communicator: _Communicator
    is_member: bool
    turn: int = 0


def _communicator(fold: Fold, group: Group, rank: int, known: _Known) -> _Communicator:
    """Return the communicator of a group as the rank has it; one that lists its ranks is the same on all of them."""
    if (communicator := known.listed.get(id(group))) is not None:
        return communicator
    key = fold.communicator(group, rank)
    communicator = known.by_key.get(key)
    if communicator is None:
        members = fold.members(group, rank)
        visited = tuple(member for member in members if fold.representative(member) == member)
        communicator = known.by_key[key] = _Communicator(key, members, frozenset(members), visited)
    if fold.plan.declared(group).ranks:
        known.listed[id(group)] = communicator
    return communicator


def _meet(call: Call, place: _Place, found: Traffic) -> None:
    communicator = place.communicator
    call.members, call.communicator = communicator.members, communicator.key
    if not place.is_member:
        found.outside.append(call)
        return
    if place.turn == len(communicator.meetings):
        communicator.meetings.append(Meeting(communicator.key, communicator.visited))
        if place.turn == 0:
            found.meetings[communicator.key] = communicator.meetings
    call.meeting = communicator.meetings[place.turn]
    call.meeting.calls[call.rank] = call
    place.turn += 1


def _pair(plan: Plan, found: Traffic) -> None:
    for channel in found.channels.values():
        tags: dict[int, tuple[list[Call], list[Call]]] = {}
        for end, calls in enumerate(channel):
            for call in calls:
                assert isinstance(call.operator, Send | Receive)
                tags.setdefault(call.operator.tag, ([], []))[end].append(call)
        for sends, receives in tags.values():
            if len(sends) != len(receives):
                longer, shorter = (sends, receives) if len(sends) > len(receives) else (receives, sends)
                runs = ([(call.operator, call.micro_batch) for call in calls] for calls in (longer, shorter))
                more = {*left_over(plan, *runs)}
                longer[:] = [call for at, call in enumerate(longer) if at not in more]
            for send, receive in zip(sends, receives, strict=True):
                send.partner, receive.partner = receive, send
