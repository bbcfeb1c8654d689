"""Do ranks issue the collectives of several groups in orders that fit, as if each completed where it is issued?"""

from __future__ import annotations

from collections import deque

from tvlint.analyses.communication.calls import Call, Meeting, Traffic
from tvlint.analyses.dataflow.def_use import handle_of


def crossed_issues(traffic: Traffic) -> list[tuple[Call, ...]]:
    """Return a cycle of ranks of which each issues a collective that the next has not reached; empty where the orders fit.

    Asynchronous collectives do not block who issues them, but their kernels wait on the device for those of the other members,
    and may keep the other group's kernels from starting. Collectives that not all members run are left out.
    """
    rows = {rank: [call for call in calls if _meets(call)] for rank, calls in traffic.calls.items()}
    if not any(handle_of(call.operator) for row in rows.values() for call in row):
        return []
    at = dict.fromkeys(rows, 0)
    arrived: dict[Meeting, list[int]] = {}
    ready = deque(rows)
    while ready:
        rank = ready.popleft()
        if at[rank] >= len(rows[rank]):
            continue
        meeting = rows[rank][at[rank]].meeting
        assert meeting is not None
        there = arrived.setdefault(meeting, [])
        if rank not in there:
            there.append(rank)
        if len(there) == len(meeting.members):
            for member in there:
                at[member] += 1
            ready.extend(there)
    blocked = {rank: rows[rank][at[rank]] for rank in rows if at[rank] < len(rows[rank])}
    return [_cycle(blocked)] if blocked else []


def _meets(call: Call) -> bool:
    return call.meeting is not None and len(call.meeting.members) > 1 and len(call.meeting.calls) == len(call.meeting.members)


def _cycle(blocked: dict[int, Call]) -> tuple[Call, ...]:
    """From rank to a member that stands elsewhere, until a rank comes again."""
    path: list[int] = []
    rank = min(blocked)
    while rank not in path:
        path.append(rank)
        meeting = blocked[rank].meeting
        members = meeting.members if meeting is not None else ()
        rank = next((other for other in members if other in blocked and blocked[other].meeting is not meeting), rank)
    return tuple(blocked[each] for each in path[path.index(rank) :])
