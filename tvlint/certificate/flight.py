"""That nothing is touched while communication of it is under way, on any rank, from the first step to the last.

A rank starts its operators in the order of its program. Communication with a handle is under way from there until the handle is
waited for, and all else is done at once, on the main stream. Communication on another stream starts when what that stream had
to wait for is done: work of the main stream is, up to where it recorded the last event that the stream waits for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from tvlint.certificate.meetings import Flown, taken, touched, weights_of_gradients
from tvlint.certificate.tables import Rejected
from tvlint.ir.operators import Await, Operator, Receive, Record, ReduceGradients, Send, Update, Wait
from tvlint.ir.plan import Plan, Program, Role, Step

Key: TypeAlias = "tuple[str, int]"
"""A value on a rank: a name, and the micro-batch that it is of, or `_ANY` for what lasts over all of them."""

_ANY = -2
_MAIN = ("", "main")


def check_flight(plan: Plan) -> None:
    """Rejects a plan in which a rank touches what is under way, or works on another stream at once."""
    operators = [own for segment in plan.segments.values() for own in segment.operators]
    if not any(own.stream or isinstance(own, Wait) or getattr(own, "handle", "") for own in operators):
        return
    lasting = {name for name, tensor in plan.tensors.items() if tensor.role not in (Role.ACTIVATION, Role.GRADIENT)}
    owner = weights_of_gradients(plan)
    for program in plan.programs:
        _Rank(plan, lasting | owner.keys(), owner).run(program)


@dataclass(slots=True)
class _Flight:
    """What is under way with one handle: the step that started it, what it reads and what it writes."""

    step: int
    reads: set[Key]
    writes: set[Key]


@dataclass(slots=True)
class _Rank:
    """One rank, while its program is walked. Time is the number of operators of the main stream so far."""

    plan: Plan
    lasting: set[str]
    owner: dict[str, str]
    """The weight of each gradient of one."""
    time: int = 0
    under_way: dict[Flown, _Flight] = field(default_factory=dict)
    touched: dict[Key, int] = field(default_factory=dict)
    """When the main stream touched a value last."""
    events: dict[str, int] = field(default_factory=dict)
    known: dict[str, int] = field(default_factory=dict)
    """Up to which time each other stream has waited for the main stream."""

    def run(self, program: Program) -> None:
        for number, step in enumerate(program.steps):
            for own in self.plan.segments[step.segment].operators:
                if isinstance(own, Record):
                    self.events[own.event] = self.time if own.stream in _MAIN else self.known.get(own.stream, 0)
                elif isinstance(own, Await):
                    self.known[own.stream] = max(self.known.get(own.stream, 0), self.events.get(own.event, 0))
                else:
                    self.passes(number, step, own)
        for handle, _ in self.under_way:
            raise Rejected(f"`{handle}` is never waited for")

    def passes(self, number: int, step: Step, own: Operator) -> None:
        """Rejects an operator that touches what is under way; any other starts, ends, or goes by."""
        handle = getattr(own, "handle", "")
        if own.stream not in _MAIN and (isinstance(own, Wait) or not handle):
            raise Rejected(f"an operator works on the stream `{own.stream}`, which the checker does not follow")
        self.time += 1
        if isinstance(own, Wait):
            ended = taken(self.under_way, own.handle, step.micro_batch)
            if ended is None:
                raise Rejected(f"`{own.handle}` is waited for, and nothing under way has that handle")
            self.touched.update(dict.fromkeys(ended.reads | ended.writes, self.time))
            return
        own_reads, own_writes = touched(own)
        if isinstance(own, ReduceGradients | Update):
            own_writes = own_writes | {name for name, weight in self.owner.items() if weight in own_reads}
        reads, writes = set(self.keys(step, own_reads)), set(self.keys(step, own_writes))
        for flight in self.under_way.values():
            if reads & flight.writes or writes & (flight.reads | flight.writes):
                raise Rejected("a tensor is used while a communication of it is under way")
        if own.stream in _MAIN:
            self.touched.update(dict.fromkeys(reads | writes, self.time))
        elif any(self.touched.get(key, 0) > self.known.get(own.stream, 0) for key in reads | writes):
            raise Rejected(f"communication on the stream `{own.stream}` does not wait for what the main stream does before")
        if handle:
            self.start(number, (handle, step.micro_batch), own, reads, writes)

    def start(self, number: int, handle: Flown, own: Operator, reads: set[Key], writes: set[Key]) -> None:
        """Several messages of one step may have one handle."""
        before = self.under_way.setdefault(handle, _Flight(number, set(), set()))
        if (before.reads or before.writes) and (before.step != number or not isinstance(own, Send | Receive)):
            raise Rejected(f"`{handle[0]}` is under way twice in one micro-batch")
        before.reads |= reads
        before.writes |= writes

    def keys(self, step: Step, names: set[str]) -> Iterator[Key]:
        """The values that the names may stand for: inside the step, and outside it where they come in or go out.

        A step of no micro-batch may touch values of one only where there is one.
        """
        segment, micro_batch = self.plan.segments[step.segment], max(step.micro_batch, 0)
        for name in names:
            yield (name, _ANY if name in self.lasting else micro_batch)
        for inside, outside in ((segment.inputs, step.inputs), (segment.outputs, step.outputs)):
            for inner, name in zip(inside, outside or (), strict=False):
                if inner in names:
                    yield (name, _ANY if name in self.lasting else micro_batch)
