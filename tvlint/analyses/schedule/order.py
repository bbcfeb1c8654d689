"""Check that the steps of a schedule can run in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tvlint.analyses.schedule.messages import Message, Messages, message_of, needed
from tvlint.analyses.schedule.steps import BACKWARDS, Step
from tvlint.ir.schedule import ActionKind


@dataclass(frozen=True, slots=True)
class Inversion:
    """`early` needs what `late` gives, but does not stand after it on their rank."""

    early: Step
    late: Step


@dataclass(frozen=True, slots=True)
class Deadlock:
    """A cycle of ranks: the step of each waits for the step of the next one, which does not come."""

    waits: tuple[tuple[Step, Step], ...]


def inversions(computes: Mapping[tuple[ActionKind, int, int], Step]) -> Iterator[Inversion]:
    """Compute steps that do not stand after what they need on their own rank."""
    for (kind, stage, micro_batch), step in computes.items():
        for need in _needs(kind, stage):
            other = computes.get((*need, micro_batch))
            if other is not None and other.rank == step.rank and other.position >= step.position:
                yield Inversion(step, other)


def _needs(kind: ActionKind, stage: int) -> Iterator[tuple[ActionKind, int]]:
    if kind is ActionKind.WEIGHT_GRADIENT:
        yield ActionKind.INPUT_GRADIENT, stage
        return
    yield ActionKind.FORWARD, stage - 1 if kind is ActionKind.FORWARD else stage
    if kind is not ActionKind.FORWARD:
        yield from ((backward, stage + 1) for backward in BACKWARDS)


def buffered(
    steps: Iterable[Step],
    computes: Mapping[tuple[ActionKind, int, int], Step],
    messages: Messages | None,
) -> Deadlock | None:
    """Return the circle in which ranks wait when each runs its steps one after the other and sends wait for none.

    A compute step waits for the send of its input or, without messages, for the step that gives it.
    """
    waits: dict[tuple[int, int], list[tuple[Step, Step]]] = {}
    for message, (giver, taker) in needed(computes).items():
        pair = messages.pair(message) if messages is not None else None
        waits.setdefault((taker.rank, taker.position), []).append((taker, pair[0] if pair is not None else giver))
    ends: dict[int, int] = {}
    for step in steps:
        ends[step.rank] = max(ends.get(step.rank, 0), step.position + 1)
    at = dict.fromkeys(ends, 0)
    asleep: dict[tuple[int, int], list[int]] = {}
    blocked: dict[int, tuple[Step, Step]] = {}
    awake = list(ends)
    while awake:
        rank = awake.pop()
        blocked.pop(rank, None)
        while at[rank] < ends[rank]:
            open_waits = [wait for wait in waits.get((rank, at[rank]), ()) if at[wait[1].rank] <= wait[1].position]
            if open_waits:
                blocked[rank] = open_waits[0]
                asleep.setdefault((open_waits[0][1].rank, open_waits[0][1].position), []).append(rank)
                break
            awake += asleep.pop((rank, at[rank]), ())
            at[rank] += 1
    return _circle(blocked)


def rendezvous(
    steps: Iterable[Step], computes: Mapping[tuple[ActionKind, int, int], Step], messages: Messages
) -> Deadlock | None:
    """Return the circle in which ranks wait when a send waits for its receive.

    As NCCL runs them: the messages of a rank one after the other, each after the compute steps before it; a compute step
    after the ones before it and its own receive.
    """
    runs = _runs(steps, computes, messages)
    awake = list(runs)
    while awake:
        rank = awake.pop()
        run = runs[rank]
        while True:
            moved = run.compute()
            head = run.head()
            if head is not None and run.ready():
                partner = run.partners.get(head.position)
                other = runs[partner.rank] if partner is not None else None
                if partner is None or other is None:
                    run.sent += 1
                    moved = True
                elif other.head() is partner and other.ready():
                    run.sent += 1
                    other.sent += 1
                    awake.append(partner.rank)
                    moved = True
            if not moved:
                break
    blocked = {}
    for rank, run in runs.items():
        head = run.head()
        if head is not None and head.position in run.partners:
            blocked[rank] = (head, run.partners[head.position])
    return _circle(blocked)


@dataclass
class _Run:
    """The progress of one rank: its compute steps and its messages, each in order."""

    computes: list[Step]
    messages: list[Step]
    partners: dict[int, Step]
    receives: dict[int, int]
    """For the position of a compute step, how many messages must be over before it."""
    computed: int = 0
    sent: int = 0

    def head(self) -> Step | None:
        """Return the message that is next."""
        return self.messages[self.sent] if self.sent < len(self.messages) else None

    def ready(self) -> bool:
        """Return whether the compute steps before the next message are over."""
        head = self.head()
        over = self.computed == len(self.computes)
        return head is not None and (over or self.computes[self.computed].position > head.position)

    def compute(self) -> bool:
        """Run the compute steps that have what they need; whether there was one."""
        before = self.computed
        while self.computed < len(self.computes):
            if self.receives.get(self.computes[self.computed].position, 0) > self.sent:
                break
            self.computed += 1
        return self.computed > before


def _runs(steps: Iterable[Step], computes: Mapping[tuple[ActionKind, int, int], Step], messages: Messages) -> dict[int, _Run]:
    runs: dict[int, _Run] = {}
    order: dict[tuple[int, int], int] = {}
    for step in steps:
        run = runs.setdefault(step.rank, _Run([], [], {}, {}))
        message = message_of(step)
        if step.computes:
            run.computes.append(step)
        elif message is not None:
            order[step.rank, step.position] = len(run.messages)
            run.messages.append(step)
            pair = messages.pair(message)
            if pair is not None and step in pair:
                run.partners[step.position] = pair[1] if step is pair[0] else pair[0]
    for message, (_, taker) in messages.needed.items():
        pair = messages.pair(message)
        if pair is not None and pair[1].rank == taker.rank and pair[1].position < taker.position:
            receives = runs[taker.rank].receives
            number = order[taker.rank, pair[1].position] + 1
            receives[taker.position] = max(receives.get(taker.position, 0), number)
    return runs


def _circle(blocked: Mapping[int, tuple[Step, Step]]) -> Deadlock | None:
    """Return the first circle among ranks that wait for each other."""
    seen: set[int] = set()
    for start in sorted(blocked):
        path: list[int] = []
        rank = start
        while rank in blocked and rank not in seen:
            seen.add(rank)
            path.append(rank)
            rank = blocked[rank][1].rank
        if rank in path:
            ring = path[path.index(rank) :]
            first = ring.index(min(ring))
            return Deadlock(tuple(blocked[rank] for rank in ring[first:] + ring[:first]))
    return None


def crossed(messages: Messages) -> Iterator[tuple[tuple[int, int], Step, Step, Message, Message]]:
    """For each pair of ranks, the first send that meets the receive of another message: NCCL pairs them in order."""
    for channel, (sends, receives) in messages.channels.items():
        paired = [(step, message) for step in sends if (message := _paired(step, messages)) is not None]
        taken = [(step, message) for step in receives if (message := _paired(step, messages)) is not None]
        for (send, sent), (receive, received) in zip(paired, taken, strict=False):
            if sent != received:
                yield channel, send, receive, sent, received
                break


def _paired(step: Step, messages: Messages) -> Message | None:
    message = message_of(step)
    return message if message is not None and messages.pair(message) is not None else None
