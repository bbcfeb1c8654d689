"""Does the plan's communication come to an end? It is run, with nothing but its blocking."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tvlint.analyses.communication.calls import Call, Meeting, Site, Traffic
from tvlint.analyses.dataflow.def_use import stream_of
from tvlint.ir.operators import Await, Receive, Record, Send, Wait


@dataclass(slots=True, eq=False)
class _Lane:
    """The calls of one rank on one stream, and how far they have run."""

    rank: int
    queue: list[Call] = field(default_factory=list)
    at: int = 0
    queued: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Standstill:
    """The calls at which ranks stand for ever, and the cycles among them, each in the order `waits for the next`."""

    blocked: tuple[Call, ...]
    cycles: tuple[tuple[Call, ...], ...]


def standstill(traffic: Traffic, buffered: bool) -> Standstill:
    """Runs all calls; empty when every rank ends.

    Matching is deterministic, so one run decides. A blocking send completes when its receive is posted, or at once when
    `buffered`; calls with a handle block nobody until they are waited for; each stream of a rank is a sequence of its own.
    """
    return _Run(traffic, buffered).run()


class _Run:
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

    def run(self) -> Standstill:
        ready = deque(self.lanes)
        while ready:
            lane = ready.popleft()
            lane.queued = False
            self._advance(lane, ready)
        blocked = [lane.queue[lane.at] for lane in self.lanes if lane.at < len(lane.queue)]
        return Standstill(tuple(blocked), tuple(self._cycles(blocked)))

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
        """What has to happen for `call` to go on."""
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
        """Disjoint cycles of ranks that wait for each other; every blocked call is followed once."""
        at_rank: dict[int, list[Call]] = {}
        for call in blocked:
            at_rank.setdefault(call.rank, []).append(call)
        done: set[Call] = set()
        cycles: list[tuple[Call, ...]] = []
        for start in blocked:
            path: list[Call] = []
            places: dict[Call, int] = {}
            stack = [(start, iter(self._next(start, at_rank)))] if start not in done else []
            if stack:
                places[start] = 0
                path.append(start)
            while stack:
                call, targets = stack[-1]
                target = next(targets, None)
                if target is None:
                    stack.pop()
                    done.add(call)
                    path.pop()
                    del places[call]
                elif target in places:
                    cycles.append(tuple(path[places[target] :]))
                    done.update(path)
                    break
                elif target not in done:
                    places[target] = len(path)
                    path.append(target)
                    stack.append((target, iter(self._next(target, at_rank))))
        return cycles

    def _next(self, call: Call, at_rank: dict[int, list[Call]]) -> list[Call]:
        """The blocked calls that stand before what `call` needs."""
        operator = call.operator
        if isinstance(operator, Wait):
            issues = [issue for issue in call.waits_for if not self._done(issue)]
            return [target for issue in issues for target in self._next(issue, at_rank)]
        if isinstance(operator, Await):
            record = self.event_of.get(call)
            if record is None:
                return []
            return [at for at in at_rank.get(call.rank, ()) if _before(at, record)]
        if call.meeting is not None:
            missing = [
                (rank, call.meeting.calls.get(rank))
                for rank in call.meeting.members
                if call.meeting.calls.get(rank) not in self.posted
            ]
            return [at for rank, needed in missing if needed is not None for at in at_rank.get(rank, ()) if _before(at, needed)]
        if call.partner is None:
            return []
        partner = call.partner
        return [at for at in at_rank.get(partner.rank, ()) if _before(at, partner)]


def _in_one_lane(site: Site) -> bool:
    """Whether the calls of the site run on the stream that ranks have anyway, and no event is looked for."""
    return not stream_of(site.operator) and not isinstance(site.operator, (Record, Await))


def _before(standing: Call, needed: Call) -> bool:
    """Whether the blocked call `standing` is what keeps `needed` from being posted."""
    return stream_of(standing.operator) == stream_of(needed.operator)


def _together(queue: list[Call], start: int) -> list[Call]:
    """The call at `start` and those that are issued in one batch with it."""
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
