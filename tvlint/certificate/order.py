"""That no rank waits for ever, when sends wait for their receives: communication is run, with nothing but its waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import TypeAlias

from tvlint.certificate.meetings import Flown, meeting_of, taken
from tvlint.certificate.tables import Rejected
from tvlint.ir.operators import Communicate, Operator, Receive, ReduceGradients, Send, Wait
from tvlint.ir.plan import Plan, Program

Event: TypeAlias = "tuple[Hashable, int]"
"""One communication, and how many ranks take part in it."""

Stop: TypeAlias = "tuple[list[Event], list[Event]]"
"""What a rank starts together, and what it then waits for."""


def check_order(plan: Plan) -> None:
    """Rejects a plan whose ranks do not all come to their ends."""
    started: Counter[Hashable] = Counter()
    lanes = {rank: _stops(plan, program, rank) for program in plan.programs for rank in program.ranks}
    at: dict[int, list[Event]] = {}
    sleeping: dict[Hashable, list[int]] = {}
    ready = list(lanes)
    while ready:
        rank = ready.pop()
        while True:
            waits = [event for event in at.pop(rank, []) if started[event[0]] < event[1]]
            if waits:
                at[rank] = waits
                sleeping.setdefault(waits[0][0], []).append(rank)
                break
            stop = next(lanes[rank], None)
            if stop is None:
                break
            for event, _ in stop[0]:
                started[event] += 1
                ready.extend(sleeping.pop(event, ()))
            at[rank] = stop[1]
    if at:
        raise Rejected(f"rank {min(at)} waits for ever, or unless sends are buffered")


def _stops(plan: Plan, program: Program, rank: int) -> Iterator[Stop]:
    turns: Counter[Hashable] = Counter()
    handles: dict[Flown, list[Event]] = {}
    for step in program.steps:
        together = ""
        starts: list[Event] = []
        waits: list[Event] = []
        for own in plan.segments[step.segment].operators:
            batch = own.batch if isinstance(own, Send | Receive) else ""
            if starts and (not batch or batch != together):
                yield starts, waits
                starts, waits = [], []
            together = batch
            if isinstance(own, Wait):
                yield [], taken(handles, own.handle, step.micro_batch) or []
                continue
            event = _event(plan, own, rank, turns)
            if event is None:
                continue
            starts.append(event)
            handle = getattr(own, "handle", "")
            if handle:
                handles.setdefault((handle, step.micro_batch), []).append(event)
            else:
                waits.append(event)
        if starts:
            yield starts, waits


def _event(plan: Plan, own: Operator, rank: int, turns: Counter[Hashable]) -> Event | None:
    """The communication that the operator takes part in: the next one of its channel."""
    meeting = meeting_of(plan, own, rank)
    if meeting is None:
        return None
    turns[meeting.key, meeting.end] += 1
    kind = ReduceGradients if isinstance(own, ReduceGradients) else Communicate
    return (kind, meeting.key, turns[meeting.key, meeting.end]), len(meeting.members)
