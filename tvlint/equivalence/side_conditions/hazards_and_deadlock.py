"""Check that values may be derived in any order: no deadlock, and no access to a buffer in flight."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.deadlock import buffered_deadlock, unbuffered_deadlock
from tvlint.analyses.communication.hazards import Hazard, hazards
from tvlint.analyses.communication.streams import crossings
from tvlint.analyses.dataflow.def_use import streams_named
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.relations.defect import Defect, at, source_of
from tvlint.equivalence.side_conditions.handles import reused_handles
from tvlint.ir.operators import Await, Communicate, Operator, Receive, Record, Send, Wait
from tvlint.ir.plan import Plan

TOLD = {
    "never-waited": ("handle-never-waited", "is never waited for: `wait {name}` on the same ranks before the step ends"),
    "waited-twice": ("double-wait", "is waited for again, and nothing is issued on it in between"),
    "unknown-handle": ("unknown-handle", "is waited for, and nothing was issued on it"),
    "reissued": ("handle-reissued", "is issued again before the first is waited for{by}"),
    "read-in-flight": ("missing-wait", "is read before `{handle}`, which writes it, is waited for{by}"),
    "alias-read-in-flight": (
        "buffer-in-flight", "is read while `{handle}` writes into its storage: wait for `{handle}` before{by}",
    ),
    "write-over-read": ("buffer-in-flight", "is overwritten while `{handle}` still reads it: wait for `{handle}` before{by}"),
    "write-over-write": ("buffer-in-flight", "is overwritten while `{handle}` still writes it: wait for `{handle}` before{by}"),
}  # fmt: skip
"""The rule and the words for each kind of hazard; `{by}` tells where the earlier operator is, if it stands elsewhere."""

_HARMLESS = ("handle-never-waited", "double-wait")

KINDS_THAT_REFUTE = tuple(dict.fromkeys(name for name, _ in TOLD.values() if name not in _HARMLESS))


def check_order(plan: Plan) -> Iterator[Defect]:
    """Yield what keeps the plan from running as it was derived; sends are taken to wait for their receives."""
    facts = Facts(plan)
    for hazard in hazards(facts):
        operator = plan.segments[hazard.segment].operators[hazard.index]
        rule, words = TOLD[hazard.kind]
        text = f"`{hazard.name}` on {{ranks}} {_filled(words, hazard)}"
        for rank in hazard.ranks:
            yield Defect(
                rule,
                rule in KINDS_THAT_REFUTE,
                text,
                rank,
                hazard.segment,
                source=source_of(operator),
                label=operator.label,
            )
    yield from reused_handles(plan)
    sure = set(crossings(plan))
    for crossing in (*sure, *(crossing for crossing in crossings(plan, strict=True) if crossing not in sure)):
        text = f"`{crossing.name}` on {{ranks}} is used on another stream than the one that makes it, without waiting"
        for rank in crossing.ranks:
            yield Defect("cross-stream-access", crossing in sure, text, rank, crossing.segment)
    for name, segment in plan.segments.items():
        for operator in segment.operators if streams_named(segment.operators) else ():
            if _unordered(operator):
                text = f"an operator of `{name}` works on the stream `{operator.stream}`"
                yield at(operator, name, Defect("side-stream", False, text, plan.programs[0].ranks[0]))
    stores: dict[str, str] = {}
    for tensor in plan.tensors.values():
        if tensor.storage and stores.setdefault(tensor.storage, tensor.name) != tensor.name:
            text = f"`{tensor.name}` and `{stores[tensor.storage]}` share the buffer `{tensor.storage}`"
            yield Defect("shared-storage", False, text, plan.programs[0].ranks[0])
    if not unbuffered_deadlock(facts).blocked:
        return
    stuck = buffered_deadlock(facts).blocked or unbuffered_deadlock(facts).blocked
    certain = bool(buffered_deadlock(facts).blocked)
    name = "send-recv-deadlock" if certain else "send-needs-buffering"
    text = "on {ranks}, a communication waits for another rank, in a circle that never ends"
    if not certain:
        text = (
            "on {ranks}, a communication waits for another rank, in a circle unless sends are buffered: send asynchronously "
            "(`async HANDLE`) and `wait` later, or issue send and receive together (`batch NAME`)"
        )
    for call in stuck:
        yield Defect(
            name,
            certain,
            text,
            call.rank,
            call.site.segment,
            source=source_of(call.operator),
            label=call.operator.label,
            cause=name,
        )


def _filled(words: str, hazard: Hazard) -> str:
    where = hazard.other[0] if hazard.other is not None else hazard.segment
    by = f" (issued in `{where}`)" if where != hazard.segment else ""
    return words.format(name=hazard.name, handle=hazard.handle, by=by)


def _unordered(operator: Operator) -> bool:
    """Return whether the stream analysis does not see all that the operator reads and writes."""
    if isinstance(operator, Communicate | Send | Receive):
        return bool(operator.stream) and not operator.handle
    return bool(operator.stream) and not isinstance(operator, Wait | Record | Await)
