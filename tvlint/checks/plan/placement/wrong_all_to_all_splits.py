"""wrong-all-to-all-splits: an all-to-all sends or receives sizes that do not add up."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.calls import Call, Meeting, Site
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding
from tvlint.ir.operators import Collective, Communicate
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield splits whose number or sum does not fit the group and the tensor, or of which two ranks differ."""
    yield from report(facts, rule, _message, _help)
    seen: set[Site] = set()
    for meetings in facts.traffic.meetings.values():
        for meeting in meetings:
            call, text = _crossed(meeting)
            if call is None:
                call, text = _overfilled(facts, meeting)
            if call is None or call.site in seen:
                continue
            seen.add(call.site)
            yield rule.finding(
                text,
                facts.call(call),
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
        if operator.concat_dim not in (None, operator.dim) or (operator.receive_splits and not operator.splits):
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


def _message(_: Defect) -> str:
    return "{operator} of `{name}`: {other}"


def _help(_: Defect) -> str:
    return "give one size per member, adding up to the dimension"
