"""wrong-all-to-all-splits: an all-to-all sends or receives sizes that do not add up."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tvlint.analyses.communication.calls import Call, Meeting, Site, location_of, traffic
from tvlint.analyses.dataflow.def_use import of_kinds
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding
from tvlint.ir.operators import Collective, Communicate
from tvlint.plurals import counted
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield splits whose number or sum does not fit the group and the tensor, or of which two ranks differ."""
    yield from _misfitting(facts, rule)
    seen: set[Site] = set()
    for meetings in traffic(facts).meetings.values():
        for meeting in meetings:
            call, text = _crossed(meeting)
            if call is None:
                call, text = _overfilled(facts, meeting)
            if call is None or call.site in seen:
                continue
            seen.add(call.site)
            yield rule.finding(
                text,
                location_of(facts, call),
                "let every rank receive from each what that rank sends to it",
                ranks=facts.fold.everywhere(meeting.members),
                about=call.operator.outputs[:1] if isinstance(call.operator, Communicate) else (),
            )


def _crossed(meeting: Meeting) -> tuple[Call | None, str]:
    """Return the first pair of ranks of which one sends another size than the other receives."""
    splits: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    for rank, call in meeting.calls.items():
        operator = call.operator
        if not isinstance(operator, Communicate) or operator.kind is not Collective.ALL_TO_ALL:
            return None, ""
        splits[rank] = (operator.splits, operator.receive_splits)
    count = len(meeting.members)
    if len({call.site for call in meeting.calls.values()}) < 2 or len(splits) < count:
        return None, ""
    if any(len(sent) != count or len(received) != count for sent, received in splits.values()):
        return None, ""
    for at, rank in enumerate(meeting.members):
        for other, peer in enumerate(meeting.members):
            sent, received = splits[rank][0][other], splits[peer][1][at]
            if sent != received:
                text = f"rank {rank} sends {sent} to rank {peer} in the all-to-all, which receives {received} from it"
                return meeting.calls[peer], text
    return None, ""


def _overfilled(facts: Facts, meeting: Meeting) -> tuple[Call | None, str]:
    """Return the first rank whose result does not hold what all members together send to it."""
    sent: dict[int, tuple[int, ...]] = {}
    for rank, call in meeting.calls.items():
        operator = call.operator
        if not isinstance(operator, Communicate) or operator.kind is not Collective.ALL_TO_ALL or len(operator.inputs) != 1:
            return None, ""
        if operator.joined_dim != operator.dim or (operator.receive_splits and not operator.splits):
            return None, ""
        sent[rank] = operator.splits
    count = len(meeting.members)
    if len({call.site for call in meeting.calls.values()}) < 2 or any(len(sizes) != count for sizes in sent.values()):
        return None, ""
    if len(sent) < count:
        return None, ""
    for at, rank in enumerate(meeting.members):
        call, total = meeting.calls[rank], sum(sizes[at] for sizes in sent.values())
        operator = call.operator
        result = facts.plan.tensors.get(operator.outputs[0]) if isinstance(operator, Communicate) and operator.outputs else None
        dim = operator.dim or 0 if isinstance(operator, Communicate) else 0
        if result is None or not -len(result.shape) <= dim < len(result.shape) or result.shape[dim] == total:
            continue
        return call, f"`{result.name}` has {result.shape[dim]} rows on rank {rank}, to which the all-to-all sends {total}"
    return None, ""


def _misfitting(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield the all-to-alls whose splits are other than their group and tensor want, once each."""
    for name, segment in facts.plan.segments.items():
        ranks = facts.ranks_running(name)
        for index, operator in of_kinds(segment.operators, {Communicate}) if ranks else ():
            if not isinstance(operator, Communicate) or operator.kind is not Collective.ALL_TO_ALL:
                continue
            group = facts.plan.declared(operator.group)
            every = [axis.name for axis in facts.plan.mesh.axes]
            members = len(set(group.ranks)) or prod(facts.plan.mesh.axis_size(axis) for axis in group.axes or every)
            for source in operator.inputs if members > 1 else ():
                tensor = facts.plan.tensors.get(source)
                fault = _fault(operator, tensor.shape, members) if tensor is not None else ""
                if fault:
                    yield rule.finding(
                        f"{operator.kind.value} of `{source}`: {fault}",
                        facts.place(name, index),
                        "give one size per member, adding up to the dimension",
                        ranks=facts.fold.everywhere(ranks),
                        about=(source,),
                    )


def _fault(operator: Communicate, shape: tuple[int, ...], members: int) -> str:
    """Return what is wrong with the sizes that an all-to-all sends and receives, in words; empty: nothing."""
    for what, splits in (("splits", operator.splits), ("receive-splits", operator.receive_splits)):
        if splits and len(splits) != members:
            return f"{len(splits)} {what} for {counted(members, 'rank')}"
    dim = operator.dim if operator.dim is not None else 0
    if not -len(shape) <= dim < len(shape):
        return ""
    if operator.splits and sum(operator.splits) != shape[dim]:
        return f"splits {list(operator.splits)} add up to {sum(operator.splits)}, the dimension has {shape[dim]}"
    if not operator.splits and shape[dim] % members:
        return f"a dimension of {shape[dim]} for {counted(members, 'rank')}"
    return ""
