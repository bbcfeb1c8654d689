"""Messages and collectives meet their counterparts of the same micro-batch, in the pattern of the first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from tvlint.ir.location import Location
from tvlint.ir.operators import Communicate, Receive, Send
from tvlint.ir.plan import Plan
from tvlint.proof.groups import members_of, peer_of, spans_replicas
from tvlint.proof.trouble import Trouble

Entry: TypeAlias = tuple[object, int, int]
"""One communication of a rank: which operator, for which micro-batch, with which tag."""


def mispaired(plan: Plan) -> Iterator[Trouble]:
    """Messages and collectives meet their counterparts of the same micro-batch, in the pattern of the first."""
    sends: dict[object, list[Entry]] = {}
    receives: dict[object, list[Entry]] = {}
    collectives: dict[tuple[object, int], list[Entry]] = {}
    members: dict[object, tuple[int, ...]] = {}
    places: dict[object, Location | None] = {}
    talking = {
        name: [(i, own) for i, own in enumerate(segment.operators) if isinstance(own, Send | Receive | Communicate)]
        for name, segment in plan.segments.items()
    }
    for program in plan.programs:
        for rank in program.ranks:
            for step in program.steps:
                for index, operator in talking[step.segment]:
                    entry = ((rank, step.segment, index), step.micro_batch)
                    places[entry[0]] = operator.source
                    if isinstance(operator, Send | Receive):
                        peer = peer_of(plan, operator.peer, rank)
                        if peer is None:
                            continue
                        if isinstance(operator, Send):
                            sends.setdefault((rank, peer, operator.communicator), []).append((*entry, operator.tag))
                        else:
                            receives.setdefault((peer, rank, operator.communicator), []).append((*entry, operator.tag))
                    elif isinstance(operator, Communicate) and operator.kind.value != "chunk":
                        group = members_of(plan, operator.group, rank)
                        meeting = (group, operator.group.name, spans_replicas(plan, operator.group))
                        members[meeting] = group
                        collectives.setdefault((meeting, rank), []).append((*entry, 0))
    for channel in sorted({*sends, *receives}, key=str):
        certain = plan.replication.count == 1
        yield from _paired(sends.get(channel, []), receives.get(channel, []), "message", places, certain)
    for joined, group in members.items():
        first = collectives.get((joined, group[0]), [])
        for rank in group[1:]:
            yield from _paired(first, collectives.get((joined, rank), []), "collective", places)


def _paired(
    one: list[Entry], other: list[Entry], what: str, places: Mapping[object, Location | None], certain: bool = True
) -> Iterator[Trouble]:
    if not one and not other:
        return
    rank = _rank(one) if one else _rank(other)
    if len(one) != len(other):
        here, there = (_rank(one), _rank(other)) if one and other else (rank, -1)
        text = f"{{ranks}} has {len(one)} {what}s where the other end has {len(other)}"
        own = next(
            (entries[0] for entries in (one, other) if entries and _rank(entries) == (here if there < 0 else there)), None
        )
        source = places.get(own[0]) if own is not None else None
        yield Trouble(f"unmatched-{what}", certain, text, here if there < 0 else there, source=source)
        return
    meets: dict[object, object] = {}
    for (left, left_batch, left_tag), (right, right_batch, right_tag) in zip(one, other, strict=True):
        if left_tag != right_tag:
            text = f"a {what} of {{ranks}} with tag {left_tag} meets one with tag {right_tag}"
            yield Trouble(f"mispaired-{what}", False, text, rank, source=places.get(left))
            return
        if left_batch != right_batch:
            text = f"a {what} of {{ranks}} for micro-batch {left_batch} meets one for micro-batch {right_batch}"
            yield Trouble("crossed-micro-batches", True, text, rank, source=places.get(left))
            return
        if meets.setdefault(left, right) != right:
            text = f"a {what} of {{ranks}} meets another one than for the first micro-batch"
            yield Trouble(f"mispaired-{what}", True, text, rank, source=places.get(left))
            return


def _rank(entries: list[Entry]) -> int:
    first = entries[0][0]
    assert isinstance(first, tuple)
    return int(first[0])
