"""The messages that a schedule spells out, and those that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tvlint.analyses.schedule.extent import Extent
from tvlint.analyses.schedule.stage_placement import Placement
from tvlint.analyses.schedule.steps import BACKWARDS, Step
from tvlint.ir.schedule import ActionKind

_SENDS = {ActionKind.SEND_FORWARD: True, ActionKind.SEND_BACKWARD: False}
_RECEIVES = {ActionKind.RECEIVE_FORWARD: True, ActionKind.RECEIVE_BACKWARD: False}


class Message(NamedTuple):
    """A message of pipeline stage `source`: its output to the next stage, or the gradient of its input to the one before."""

    forward: bool
    source: int
    micro_batch: int

    @property
    def destination(self) -> int:
        """Return the pipeline stage that it is for."""
        return self.source + 1 if self.forward else self.source - 1

    @property
    def send(self) -> str:
        """Return the send, as the schedule spells it."""
        return f"{self.source}SEND_{'F' if self.forward else 'B'}{self.micro_batch}"

    @property
    def receive(self) -> str:
        """Return the receive, as the schedule spells it."""
        return f"{self.destination}RECV_{'F' if self.forward else 'B'}{self.micro_batch}"

    def __str__(self) -> str:
        what = "output" if self.forward else "gradient"
        return f"the {what} of pipeline stage {self.source} for micro-batch {self.micro_batch}"


@dataclass(frozen=True, slots=True)
class Messages:
    """The steps that send and receive each message; `without_peer` are those whose other end is nowhere or here.

    `needed` maps each message between ranks to the compute steps that give and take it. `channels` are the sends and
    receives from rank to rank, in order.
    """

    sends: dict[Message, list[Step]] = field(default_factory=dict)
    receives: dict[Message, list[Step]] = field(default_factory=dict)
    without_peer: list[tuple[Step, Message]] = field(default_factory=list)
    needed: dict[Message, tuple[Step, Step]] = field(default_factory=dict)
    channels: dict[tuple[int, int], tuple[list[Step], list[Step]]] = field(default_factory=dict)

    def pair(self, message: Message) -> tuple[Step, Step] | None:
        """Return the one send and the one receive of a message; None where there is not one of each."""
        sends, receives = self.sends.get(message, []), self.receives.get(message, [])
        return (sends[0], receives[0]) if len(sends) == len(receives) == 1 else None


def message_of(step: Step) -> Message | None:
    """Return the message that a step sends or receives; None for another kind of step."""
    if step.kind in _SENDS:
        return Message(_SENDS[step.kind], step.stage, step.micro_batch)
    if step.kind in _RECEIVES:
        forward = _RECEIVES[step.kind]
        return Message(forward, step.stage - 1 if forward else step.stage + 1, step.micro_batch)
    return None


def messages(
    steps: Iterable[Step],
    placement: Placement,
    computes: Mapping[tuple[ActionKind, int, int], Step],
    extent: Extent,
) -> Messages:
    """Return the messages among `steps`, and those that `computes` need."""
    found = Messages()
    for step in steps:
        message = message_of(step)
        if message is None:
            continue
        source = placement.rank(message.source, message.micro_batch)
        destination = placement.rank(message.destination, message.micro_batch)
        inside = 0 <= message.source < extent.stages and 0 <= message.destination < extent.stages
        if not inside or source == destination:
            found.without_peer.append((step, message))
            continue
        sends = step.kind in _SENDS
        (found.sends if sends else found.receives).setdefault(message, []).append(step)
        if source is not None and destination is not None:
            found.channels.setdefault((source, destination), ([], []))[0 if sends else 1].append(step)
    found.needed.update(needed(computes))
    return found


def needed(computes: Mapping[tuple[ActionKind, int, int], Step]) -> dict[Message, tuple[Step, Step]]:
    """Return the messages between ranks that the compute steps need: who gives and who takes each."""
    found: dict[Message, tuple[Step, Step]] = {}
    for (kind, stage, micro_batch), step in computes.items():
        if kind is ActionKind.FORWARD:
            giver = computes.get((kind, stage - 1, micro_batch))
            message = Message(True, stage - 1, micro_batch)
        elif kind in BACKWARDS:
            givers = (computes.get((other, stage + 1, micro_batch)) for other in BACKWARDS)
            giver = next((step for step in givers if step is not None), None)
            message = Message(False, stage + 1, micro_batch)
        else:
            continue
        if giver is not None and giver.rank != step.rank:
            found[message] = (giver, step)
    return found
