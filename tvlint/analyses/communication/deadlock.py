"""Deadlocks of the communication of all ranks, found by running it with nothing but its blocking."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tvlint.analyses.communication.calls import Call, Meeting, Site, Traffic, traffic
from tvlint.analyses.dataflow.def_use import stream_of
from tvlint.analyses.dataflow.facts import Facts, once_per_plan
from tvlint.ir.operators import Await, Receive, Record, Send, Wait

if TYPE_CHECKING:
    import networkx as nx


@dataclass(slots=True, eq=False)
class _Lane:
    """The calls of one rank on one stream, and how far they have run."""

    rank: int
    queue: list[Call] = field(default_factory=list)
    at: int = 0
    queued: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Deadlock:
    """The calls at which ranks stand forever, and the cycles among them, each in the order `waits for the next`."""

    blocked: tuple[Call, ...]
    cycles: tuple[tuple[Call, ...], ...]


@once_per_plan
def unbuffered_deadlock(facts: Facts) -> Deadlock:
    """Return where ranks wait for ever when a send waits for its receive; empty when every rank ends."""
    return _Run(traffic(facts), buffered=False).run()


@once_per_plan
def buffered_deadlock(facts: Facts) -> Deadlock:
    """Return where ranks wait for ever even when sends complete at once; empty when every rank ends."""
    found = unbuffered_deadlock(facts)
    return _Run(traffic(facts), buffered=True).run() if found.blocked else found


class _Run:
    """One run of all calls, with nothing but their blocking. Matching is deterministic, so one run decides.

    A blocking send completes when its receive is posted, or at once when `buffered`; calls with a handle block no rank until
    they are waited for; each stream of a rank is a sequence of its own.
    """

    def __init__(self, traffic: Traffic, buffered: bool) -> None:
        self.buffered = buffered
        self.posted: set[Call] = set()
        self.arrived: dict[Meeting, int] = {}
        self.waiting: dict[object, list[_Lane]] = {}
        self.lanes: list[_Lane] = []
        self.event_of: dict[Call, Call] = {}
        for rank, calls in traffic.calls.items():
            self.lanes.extend(self._split(rank, calls))

    def _split(self, rank: int, calls: list[Call]) -> list[_Lane]:
        lanes: dict[str, _Lane] = {}
        events: dict[str, Call] = {}
        if all(_in_one_lane(site) for site in {call.site for call in calls}):
            return [_Lane(rank, calls)] if calls else []
        for call in calls:
            operator = call.operator
            if isinstance(operator, Record):
                events[operator.event] = call
            if isinstance(operator, Await) and operator.event in events:
                self.event_of[call] = events[operator.event]
            lanes.setdefault(stream_of(operator), _Lane(rank)).queue.append(call)
        return list(lanes.values())

    def run(self) -> Deadlock:
        ready = deque(self.lanes)
        while ready:
            lane = ready.popleft()
            lane.queued = False
            self._advance(lane, ready)
        blocked = [lane.queue[lane.at] for lane in self.lanes if lane.at < len(lane.queue)]
        return Deadlock(tuple(blocked), tuple(self._cycles(blocked)))

    def _advance(self, lane: _Lane, ready: deque[_Lane]) -> None:
        queue = lane.queue
        while lane.at < len(queue):
            batch = _together(queue, lane.at)
            for call in batch:
                if call not in self.posted:
                    self._post(call, ready)
            for call in batch:
                if not call.site.handle and not self._done(call):
                    self.waiting.setdefault(self._key(call), []).append(lane)
                    return
            lane.at += len(batch)

    def _post(self, call: Call, ready: deque[_Lane]) -> None:
        self.posted.add(call)
        woken: list[_Lane] = []
        meeting = call.meeting
        if meeting is not None:
            count = self.arrived.get(meeting, 0) + 1
            self.arrived[meeting] = count
            if count >= len(meeting.members):
                woken = self.waiting.pop(meeting, [])
        elif isinstance(call.operator, (Send, Receive)):
            woken = self.waiting.pop(call, [])
            if call.partner is not None:
                woken += self.waiting.pop(call.partner, [])
        elif isinstance(call.operator, Record):
            woken = self.waiting.pop(call, [])
        for lane in woken:
            if not lane.queued:
                lane.queued = True
                ready.append(lane)

    def _done(self, call: Call) -> bool:
        if call.meeting is not None:
            return self.arrived.get(call.meeting, 0) >= len(call.meeting.members)
        operator = call.site.operator
        if isinstance(operator, Wait):
            return all(self._done(issue) for issue in call.waits_for)
        if isinstance(operator, Await):
            return call not in self.event_of or self.event_of[call] in self.posted
        if isinstance(operator, (Send, Receive)):
            if call not in self.posted:
                return False
            if self.buffered and isinstance(operator, Send):
                return True
            return call.partner is not None and call.partner in self.posted
        return True

    def _key(self, call: Call) -> object:
        """Return what has to happen for `call` to go on."""
        if call.meeting is not None:
            return call.meeting
        if isinstance(call.operator, Wait):
            return next((self._key(issue) for issue in call.waits_for if not self._done(issue)), call)
        if isinstance(call.operator, Await):
            return self.event_of.get(call, call)
        if call.partner is not None and call.partner not in self.posted:
            return call.partner
        return call

    def _cycles(self, blocked: list[Call]) -> list[tuple[Call, ...]]:
        """Return disjoint cycles of the wait-for graph of the blocked calls."""
        if not blocked:
            return []
        import networkx as nx

        graph = self._wait_for_graph(blocked)
        cycles: list[tuple[Call, ...]] = []
        for component in [component for component in nx.strongly_connected_components(graph) if len(component) > 1]:
            part: nx.DiGraph[Call | Meeting] = nx.DiGraph()
            part.add_nodes_from(node for node in graph if node in component)
            part.add_edges_from((tail, head) for tail, head in graph.edges if tail in component and head in component)
            while not nx.is_directed_acyclic_graph(part):
                cycle = tuple(tail for tail, _ in nx.find_cycle(part) if isinstance(tail, Call))
                cycles.append(cycle)
                part.remove_nodes_from(cycle)
        return cycles

    def _wait_for_graph(self, blocked: list[Call]) -> nx.DiGraph[Call | Meeting]:
        """Return the graph in which a call leads to the blocked calls that stand before what it needs.

        A collective is a node of its own between the calls that have come to it and those that keep the others from coming, so
        that the edges are as many as its members and not as many as pairs of them.
        """
        import networkx as nx

        graph: nx.DiGraph[Call | Meeting] = nx.DiGraph()
        at_rank: dict[int, list[Call]] = {}
        for call in blocked:
            at_rank.setdefault(call.rank, []).append(call)
            graph.add_node(call)
        for call in blocked:
            for needed in self._needs(call):
                if isinstance(needed, Meeting) and needed not in graph:
                    missing = (needed.calls.get(rank) for rank in needed.members)
                    calls = [call for call in missing if call is not None and call not in self.posted]
                    graph.add_edges_from((needed, at) for call in calls for at in _standing_before(call, at_rank))
                if isinstance(needed, Meeting):
                    graph.add_edge(call, needed)
                else:
                    graph.add_edges_from((call, at) for at in _standing_before(needed, at_rank))
        return graph

    def _needs(self, call: Call) -> list[Call | Meeting]:
        """Return the calls that have to be posted, and the collectives that have to be complete, before `call` goes on."""
        operator = call.operator
        if isinstance(operator, Wait):
            return [needed for issue in call.waits_for if not self._done(issue) for needed in self._needs(issue)]
        if isinstance(operator, Await):
            return [self.event_of[call]] if call in self.event_of else []
        if call.meeting is not None:
            return [call.meeting]
        return [call.partner] if call.partner is not None else []


def _standing_before(needed: Call, at_rank: dict[int, list[Call]]) -> list[Call]:
    """Return the blocked calls that keep `needed` from being posted."""
    return [at for at in at_rank.get(needed.rank, ()) if _before(at, needed)]


def _in_one_lane(site: Site) -> bool:
    """Return whether the calls of the site run on the stream that ranks have anyway, and no event is looked for."""
    return not stream_of(site.operator) and not isinstance(site.operator, (Record, Await))


def _before(standing: Call, needed: Call) -> bool:
    """Return whether the blocked call `standing` is what keeps `needed` from being posted."""
    return stream_of(standing.operator) == stream_of(needed.operator)


def _together(queue: list[Call], start: int) -> list[Call]:
    """Return the call at `start` and those that are issued in one batch with it."""
    first = queue[start]
    operator = first.site.operator
    if not isinstance(operator, (Send, Receive)) or not operator.batch:
        return [first]
    end = start + 1
    while end < len(queue):
        other = queue[end].operator
        if not isinstance(other, (Send, Receive)) or other.batch != operator.batch or queue[end].step != first.step:
            break
        end += 1
    return queue[start:end]
