"""Messages and collectives meet their counterparts of the same micro-batch, in the pattern of the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from tvlint.analyses.communication.parting import place_of_parting
from tvlint.analyses.dataflow.def_use import of_kinds
from tvlint.analyses.relations.defect import Defect
from tvlint.analyses.relations.transfer.groups import Groups, Members, spans_replicas
from tvlint.ir.operators import Collective, Communicate, Operator, Receive, Send
from tvlint.ir.plan import Plan
from tvlint.plurals import counted

_TALKING = frozenset({Send, Receive, Communicate})

UNMATCHED = frozenset({"missing-collective-member", "unmatched-receive", "unmatched-send"})
"""Calls that the other end does not have, whatever the ranks run for which micro-batch."""

_Meeting: TypeAlias = tuple[Members, str, bool]

_Channel: TypeAlias = tuple[int, int, str]
"""The rank that sends, the one that receives, and the communicator."""


@dataclass(frozen=True, slots=True, eq=False)
class _Talk:
    """One communication of a rank; it is the same one for all micro-batches."""

    rank: int
    tag: int
    operator: Operator


@dataclass(slots=True, eq=False)
class _End:
    """The calls of a rank on one channel or in one group, in order, with their micro-batches."""

    said: list[_Talk] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)


class _Ends:
    """The ends of all channels and groups, found rank by rank; what a segment says on a rank is found out once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._groups = Groups(plan)
        self.sends: dict[_Channel, _End] = {}
        self.receives: dict[_Channel, _End] = {}
        self.collectives: dict[tuple[_Meeting, int], _End] = {}
        self.meetings: dict[_Meeting, None] = {}

    def talk(self, operator: Operator, rank: int) -> tuple[_End, _Talk] | None:
        """Return what `rank` says with the operator, and on which end; None where it says nothing."""
        plan = self._plan
        if isinstance(operator, Send | Receive):
            peer = plan.peer(operator.peer, rank)
            if peer is None:
                return None
            talk = _Talk(rank, operator.tag, operator)
            if isinstance(operator, Send):
                return self.sends.setdefault((rank, peer, operator.communicator), _End()), talk
            return self.receives.setdefault((peer, rank, operator.communicator), _End()), talk
        if not isinstance(operator, Communicate) or operator.kind is Collective.CHUNK:
            return None
        group = operator.group
        meeting = self._groups.members(group, rank), group.name, spans_replicas(plan, group)
        self.meetings[meeting] = None
        return self.collectives.setdefault((meeting, rank), _End()), _Talk(rank, 0, operator)


def mispaired(plan: Plan) -> Iterator[Defect]:
    """Messages and collectives meet their counterparts of the same micro-batch, in the pattern of the first."""
    ends = _Ends(plan)
    found = {name: of_kinds(segment.operators, _TALKING) for name, segment in plan.segments.items()}
    talking = {name: [operator for _, operator in operators] for name, operators in found.items() if operators}
    said: dict[int, dict[str, list[tuple[_End, _Talk]]]] = {}
    for program in plan.programs:
        steps = [step for step in program.steps if step.segment in talking]
        for rank in program.ranks:
            known = said.setdefault(rank, {})
            for step in steps:
                if step.segment not in known:
                    talks = (ends.talk(operator, rank) for operator in talking[step.segment])
                    known[step.segment] = [talk for talk in talks if talk is not None]
                for end, talk in known[step.segment]:
                    end.said.append(talk)
                    end.batches.append(step.micro_batch)
    silent = _End()
    named = {rank for program in plan.programs for rank in program.ranks}
    for channel in sorted({*ends.sends, *ends.receives}, key=str):
        certain = plan.replication.count == 1 or named.issuperset(channel[:2])
        yield from _paired(plan, ends.sends.get(channel, silent), ends.receives.get(channel, silent), "message", certain)
    for meeting in ends.meetings:
        first, *others = meeting[0].ranks
        one = ends.collectives.get((meeting, first), silent)
        for rank in others:
            yield from _paired(plan, one, ends.collectives.get((meeting, rank), silent), "collective")


def _unmatched(plan: Plan, one: _End, other: _End, what: str, certain: bool) -> Defect:
    """Return that an end has more calls than the other, at the first one that the other does not have."""
    longer, shorter = (one, other) if len(one.said) > len(other.said) else (other, one)
    runs = ([(talk.operator, batch) for talk, batch in zip(end.said, end.batches, strict=True)] for end in (longer, shorter))
    at = place_of_parting(plan, *runs)
    name = "missing-collective-member" if what == "collective" else "unmatched-send" if longer is one else "unmatched-receive"
    text = f"on {{ranks}} there are {counted(len(longer.said), what)} where the other end has {len(shorter.said)}"
    text += ": the first that it does not have is this one" if shorter.said else ""
    return Defect(name, certain, text, longer.said[at].rank, source=longer.said[at].operator.source)


def _paired(plan: Plan, one: _End, other: _End, what: str, certain: bool = True) -> Iterator[Defect]:
    if not one.said and not other.said:
        return
    if len(one.said) != len(other.said):
        yield _unmatched(plan, one, other, what, certain)
        return
    meets: dict[_Talk, _Talk] = {}
    for left, left_batch, right, right_batch in zip(one.said, one.batches, other.said, other.batches, strict=True):
        if meets.get(left) is right and left_batch == right_batch:
            continue
        if left.tag != right.tag:
            text = f"a {what} of {{ranks}} with tag {left.tag} meets one with tag {right.tag}"
            yield Defect(f"mispaired-{what}", False, text, one.said[0].rank, source=left.operator.source)
            return
        if left_batch != right_batch:
            text = f"a {what} of {{ranks}} for micro-batch {left_batch} meets one for micro-batch {right_batch}"
            yield Defect("crossed-micro-batches", True, text, one.said[0].rank, source=left.operator.source)
            return
        if meets.setdefault(left, right) is not right:
            text = f"a {what} of {{ranks}} meets another one than for the first micro-batch"
            yield Defect(f"mispaired-{what}", True, text, one.said[0].rank, source=left.operator.source)
            return
