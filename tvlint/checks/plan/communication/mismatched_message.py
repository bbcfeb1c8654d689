"""mismatched-message: the two ends of a message do not agree about what it is."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.calls import Call, location_of, traffic
from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.dataflow.facts import Facts, once_per_plan
from tvlint.findings import Finding, Related
from tvlint.ir.operators import Receive, Send
from tvlint.ir.plan import Plan, Program, Role, Tensor
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Pairs of send and receive that differ in shape, dtype, value or micro-batch; once per channel and pair of operators."""
    seen = set()
    values: set[str] = set()
    for sends, receives in traffic(facts).channels.values():
        crossed = _crossed(facts, sends, receives)
        for send in sends:
            receive = send.partner
            if receive is None or (send.site, receive.site) in seen:
                continue
            difference = _difference(facts, send, receive) or _by_name(facts, send, receive, crossed)
            if not difference:
                continue
            seen.add((send.site, receive.site))
            logical = _logical(facts, send)
            if logical and logical in values:
                continue
            values.add(logical)
            assert isinstance(send.operator, Send)
            assert isinstance(receive.operator, Receive)
            yield rule.finding(
                f"rank {receive.rank} receives `{receive.operator.tensor}` where rank {send.rank} sends "
                f"`{send.operator.tensor}`: {difference}",
                location_of(facts, receive),
                "messages between two ranks pair up in the order in which they are sent and received; "
                "let both ends name the same value",
                (Related("it is sent here", location_of(facts, send), leads=True),),
                facts.fold.everywhere(tuple(sorted({send.rank, receive.rank}))),
                about=(receive.operator.tensor, send.operator.tensor),
            )
            break


def _crossed(facts: Facts, sends: list[Call], receives: list[Call]) -> set[Call]:
    """Return sends of values of the sender's own that arrive under the name of another value that it sends to the same rank."""
    given = {send.operator.tensor for send in sends if isinstance(send.operator, Send)}
    taken = {receive.operator.tensor for receive in receives if isinstance(receive.operator, Receive)}
    if not given & taken:
        return set()
    calls = traffic(facts).calls.get(sends[0].rank, [])
    passed_on = {call.operator.tensor for call in calls if isinstance(call.operator, Receive)}
    names = (given & taken) - passed_on
    found = set()
    for send in sends:
        if send.partner is None or not isinstance(send.operator, Send) or not isinstance(send.partner.operator, Receive):
            continue
        sent, taken_as = send.operator.tensor, send.partner.operator.tensor
        if sent != taken_as and taken_as in names and sent not in passed_on:
            found.add(send)
    return found


def _by_name(facts: Facts, send: Call, receive: Call, crossed: set[Call]) -> str:
    """Return what the names alone say against the pair; empty when they say nothing."""
    if send in crossed:
        return "that is the name of another message between these ranks"
    assert isinstance(send.operator, Send)
    assert isinstance(receive.operator, Receive)
    name = receive.operator.tensor
    program = facts.fold.program_of(send.rank)
    if program is not None and name != send.operator.tensor and name in _left_behind(facts)[program]:
        return f"rank {send.rank} computes `{name}` too, and sends it nowhere"
    return ""


@once_per_plan
def _left_behind(facts: Facts) -> tuple[frozenset[str], ...]:
    """Return, by program, what it computes and neither the caller nor an operator of it reads."""
    weights = (tensor.gradient for tensor in facts.plan.tensors.values() if tensor.role is Role.WEIGHT)
    returned = frozenset((*facts.plan.outputs, *weights))
    return tuple(_unread(facts.plan, program) - returned for program in facts.plan.programs)


def _unread(plan: Plan, program: Program) -> frozenset[str]:
    computed: set[str] = set()
    known: set[str] = set()
    for step in program.steps:
        segment = plan.segments[step.segment]
        for outer, names in ((step.inputs, segment.inputs), (step.outputs, segment.outputs)):
            if outer is not None and outer != names:
                known.update(outer, names)
    for _, _, operator in plan.run_by(program):
        (known if isinstance(operator, Receive) else computed).update(writes(operator))
        known.update(reads(operator))
    return frozenset(computed - known)


def _logical(facts: Facts, send: Call) -> str:
    """Return the value that is sent, where the plan says; pieces of one value that are crossed are one mistake."""
    assert isinstance(send.operator, Send)
    tensor = facts.plan.tensors.get(send.operator.tensor)
    return tensor.logical if tensor is not None and tensor.region is not None else ""


def _difference(facts: Facts, send: Call, receive: Call) -> str:
    assert isinstance(send.operator, Send)
    assert isinstance(receive.operator, Receive)
    sent, received = facts.plan.tensors.get(send.operator.tensor), facts.plan.tensors.get(receive.operator.tensor)
    if send.micro_batch != receive.micro_batch and min(send.micro_batch, receive.micro_batch) >= 0:
        return f"micro-batch {send.micro_batch} is sent, {receive.micro_batch} expected"
    if sent is None or received is None:
        return ""
    return _of_tensors(sent, received)


def _of_tensors(sent: Tensor, received: Tensor) -> str:
    if sent.shape != received.shape:
        return f"shape {list(sent.shape)} is sent, {list(received.shape)} expected"
    if sent.dtype and received.dtype and sent.dtype != received.dtype:
        return f"{sent.dtype} is sent, {received.dtype} expected"
    if sent.logical and received.logical and sent.logical != received.logical:
        return f"`{sent.logical}` is sent, `{received.logical}` expected"
    if sent.region and received.region and sent.whole == received.whole and sent.region != received.region:
        return f"region {_box(sent.region)} is sent, {_box(received.region)} expected"
    return ""


def _box(region: tuple[tuple[int, int], ...]) -> str:
    return "[" + ",".join(f"{low}:{high}" for low, high in region) + "]"
