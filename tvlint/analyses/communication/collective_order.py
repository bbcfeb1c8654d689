"""Do the members of every group run the same collectives, in the same order?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tvlint.analyses.communication.calls import Call, Meeting, Site, Traffic, location_of, traffic
from tvlint.analyses.communication.parting import place_of_parting
from tvlint.analyses.dataflow.facts import Facts, once_per_plan
from tvlint.analyses.dataflow.shared_names import shared_name
from tvlint.ir.operators import Collective, Communicate, ReduceGradients
from tvlint.ir.plan import Plan


@dataclass(frozen=True, slots=True, eq=False)
class Disagreement:
    """The first place at which members of one communicator part.

    `kind` is `group` (a member names other ranks), `order` (same collectives, another order), `absent` (a member runs fewer)
    or `operation` (another collective in this place). `ours` and `theirs` are calls of two sides; `theirs` is None where the
    other side runs nothing more on this communicator.
    """

    kind: str
    ours: tuple[Call, ...]
    theirs: tuple[Call, ...]
    absent: tuple[int, ...] = ()


@once_per_plan
def disagreements(facts: Facts) -> tuple[Disagreement, ...]:
    """Return the first disagreement of every communicator."""
    return tuple(_disagreements(facts.plan, traffic(facts)))


def _disagreements(plan: Plan, traffic: Traffic) -> Iterator[Disagreement]:
    incomplete: dict[int, list[Call]] = {}
    for meetings in traffic.meetings.values():
        for meeting in meetings:
            if len(meeting.calls) < len(meeting.members):
                for rank, call in meeting.calls.items():
                    incomplete.setdefault(rank, []).append(call)
    found = [each for meetings in traffic.meetings.values() if (each := _first(plan, meetings, incomplete)) is not None]
    explained = {call.site for each in found if each.kind == "group" for call in (*each.ours, *each.theirs)}
    for each in found:
        if each.kind == "group" or not explained.intersection(call.site for call in (*each.ours, *each.theirs)):
            yield each
    if not found:
        yield from _exchanged(traffic)


def called(facts: Facts, call: Call) -> str:
    """Return a collective in words: kind, tensor and line."""
    operator = call.operator
    line = location_of(facts, call).line
    where = "" if line is None else f" (line {line})"
    if isinstance(operator, Communicate):
        how = f" {operator.reduce}" if operator.reduce and operator.reduce != "sum" else ""
        how += f" with root {operator.root}" if operator.root is not None else ""
        return f"`{operator.kind.value}{how}`" + (f" of `{operator.inputs[0]}`" if operator.inputs else "") + where
    if isinstance(operator, ReduceGradients):
        return f"`reduce-gradients` of `{operator.weights[0]}`{where}" if operator.weights else f"`reduce-gradients`{where}"
    return "a communication" + where


def names_of(call: Call) -> tuple[str, ...]:
    """Return the names by which `called` calls a collective: its kind and tensor."""
    operator = call.operator
    if isinstance(operator, Communicate):
        return operator.kind.value, *operator.inputs[:1]
    return ("reduce-gradients", *operator.weights[:1]) if isinstance(operator, ReduceGradients) else ()


def _first(plan: Plan, meetings: list[Meeting], incomplete: dict[int, list[Call]]) -> Disagreement | None:
    """Return the first meeting of a communicator that does not agree; what agrees once does so for every micro-batch."""
    agreed: set[frozenset[Site]] = set()
    for turn, meeting in enumerate(meetings):
        sites = frozenset([call.site for call in meeting.calls.values()])
        if len(meeting.calls) == len(meeting.members) and (len(sites) == 1 or sites in agreed):
            continue
        absent = tuple(rank for rank in meeting.members if rank not in meeting.calls)
        sides: dict[object, list[Call]] = {}
        for call in meeting.calls.values():
            sides.setdefault(signature(call), []).append(call)
        if not absent and len(sides) == 1:
            agreed.add(sites)
            continue
        ours = tuple(meeting.calls.values())
        if len(sides) > 1:
            first, second = sorted(sides.values(), key=lambda calls: (-len(calls), calls[0].rank))[:2]
            return _parted(plan, meetings, turn, (tuple(first), tuple(second)), incomplete)
        other = [call for rank in absent for call in incomplete.get(rank, ()) if _is_other_group(call, ours[0])]
        if other:
            return Disagreement("group", ours, tuple(other[:1]))
        return _absent(plan, meetings, ours, absent)
    return _reordered(meetings)


def _reordered(meetings: list[Meeting]) -> Disagreement | None:
    """Return the first place at which a member brings a tensor that another member brings at another place.

    Where members have other names for a tensor, it is the one that they bring in the same place for their first micro-batch.
    """
    if len(meetings) < 2 or all(len({call.site for call in meeting.calls.values()}) < 2 for meeting in meetings):
        return None
    calls = {rank: [meeting.calls[rank] for meeting in meetings] for rank in meetings[0].members}
    return _apart({rank: [*map(_brought, run)] for rank, run in calls.items()}, calls) or _apart(
        {rank: _places(run) for rank, run in calls.items()}, calls
    )


def _apart(brought: Mapping[int, Sequence[object]], calls: Mapping[int, Sequence[Call]]) -> Disagreement | None:
    """Return the first place at which members bring the same things in another order."""
    (first, ours), *others = brought.items()
    if len(set(ours)) < len(ours):
        return None
    for rank, theirs in others:
        if ours != theirs and set(ours) == set(theirs):
            turn = next(at for at, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other)
            return Disagreement("order", (calls[first][turn],), (calls[rank][turn],))
    return None


def _places(calls: Sequence[Call]) -> list[object]:
    """Return each call as the place of its operator among those of the member, with its micro-batch."""
    order = {site: at for at, site in enumerate(dict.fromkeys(call.site for call in calls))}
    return [(order[call.site], call.micro_batch) for call in calls]


def _exchanged(traffic: Traffic) -> Iterator[Disagreement]:
    """Sums to which two members bring different tensors, where each brings the other's to a sum of another group."""
    everywhere = [meeting for meetings in traffic.meetings.values() for meeting in meetings]
    differing = [
        meeting for meeting in everywhere
        if len({id(call.site) for call in meeting.calls.values()}) > 1
        and all(map(_sums, meeting.calls.values())) and len(set(map(_brought, meeting.calls.values()))) > 1
    ]  # fmt: skip
    sums: dict[int, set[object]] = {}
    for meeting in everywhere if differing else ():
        for call in meeting.calls.values():
            if _sums(call):
                sums.setdefault(call.rank, set()).add(_brought(call))
    for meeting in differing:
        first, *others = meeting.calls.values()
        for other in others:
            ours, theirs = _brought(first), _brought(other)
            if ours != theirs and theirs in sums.get(first.rank, ()) and ours in sums.get(other.rank, ()):
                yield Disagreement("order", (first,), (other,))
                break


def _sums(call: Call) -> bool:
    operator = call.operator
    return isinstance(operator, Communicate) and operator.kind in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)


def _brought(call: Call) -> object:
    operator = call.operator
    if isinstance(operator, ReduceGradients):
        return (tuple(map(shared_name, operator.weights)), call.micro_batch)
    return (tuple(map(shared_name, operator.inputs)) if isinstance(operator, Communicate) else (), call.micro_batch)


def _parted(
    plan: Plan,
    meetings: list[Meeting],
    turn: int,
    sides: tuple[tuple[Call, ...], tuple[Call, ...]],
    incomplete: dict[int, list[Call]],
) -> Disagreement:
    ours, theirs = sides
    left, right = ours[0].rank, theirs[0].rank
    one = [signature(meeting.calls[left]) for meeting in meetings[turn:] if left in meeting.calls]
    two = [signature(meeting.calls[right]) for meeting in meetings[turn:] if right in meeting.calls]
    if len(one) != len(two):
        shorter, longer = (right, ours) if len(one) > len(two) else (left, theirs)
        other = [call for call in incomplete.get(shorter, ()) if _is_other_group(call, longer[0])]
        if other:
            return Disagreement("group", longer, tuple(other[:1]))
        return _absent(plan, meetings, longer, (shorter,))
    same = sorted(map(str, one)) == sorted(map(str, two))
    return Disagreement("order" if same else "operation", ours, theirs)


def _absent(plan: Plan, meetings: list[Meeting], ours: tuple[Call, ...], absent: tuple[int, ...]) -> Disagreement:
    """Return the first calls of a side that members which run fewer do not run."""
    sides = ([meeting.calls[rank] for meeting in meetings if rank in meeting.calls] for rank in (ours[0].rank, absent[0]))
    runs = ([(call.operator, call.micro_batch) for call in side] for side in sides)
    calls = meetings[place_of_parting(plan, *runs)].calls
    return Disagreement("absent", tuple(calls[call.rank] for call in ours), (), absent)


def _is_other_group(call: Call, other: Call) -> bool:
    return call.communicator != other.communicator and signature(call) == signature(other)


def signature(call: Call) -> object:
    """Return what has to be the same for two members of one collective."""
    operator = call.operator
    if isinstance(operator, ReduceGradients):
        return ("reduce-gradients", operator.reduce, operator.scatter)
    if not isinstance(operator, Communicate):
        return ()
    reduces = operator.kind in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE)
    return (operator.kind.value, (operator.reduce or "sum") if reduces else "", operator.root)
