"""Take all calls of a model before one backward pass for one micro-batch: so are two batches that one loss compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvlint.readers.capture.tapes.tape import Capture, Communication, Event, Operation, Root, Tape, Wait


def with_calls_joined(capture: Capture) -> Capture:
    """Return a capture whose micro-batches end where a backward pass does, where each rank runs forwards and backwards in turn.

    It is the capture itself where its micro-batches are that already, or where a rank runs the passes in another order.
    """
    tapes = [_joined(tape) for tape in capture.tapes]
    known = tuple(tape for tape in tapes if tape is not None)
    return replace(capture, tapes=known) if len(known) == len(tapes) and known != capture.tapes else capture


def _joined(tape: Tape) -> Tape | None:
    """Return a tape whose micro-batches are counted by the backward passes before them; None where these are not in turn."""
    passes = _passes(tape.events)
    numbers: dict[int, int] = {}
    for event, number in zip(tape.events, passes, strict=False):
        if isinstance(event, Operation | Communication | Wait) and event.mark.phase == "forward":
            numbers.setdefault(event.mark.micro_batch, min(number, passes[-1] - 1))
        if isinstance(event, Root) and numbers.get(event.mark.micro_batch) != number:
            return None
    events: list[Event] = []
    for event in tape.events:
        if isinstance(event, Operation | Communication | Wait | Root) and event.mark.micro_batch >= 0:
            if event.mark.micro_batch not in numbers:
                return None
            event = replace(event, mark=replace(event.mark, micro_batch=numbers[event.mark.micro_batch]))
        events.append(event)
    return replace(tape, events=tuple(events)) if passes[-1] > 0 else None


def _passes(events: Sequence[Event]) -> list[int]:
    """Return how many backward passes ran before each event, and last how many there are; roots of one pass count as one."""
    found: list[int] = []
    count, is_backward = 0, False
    for event in events:
        if is_backward and isinstance(event, Operation) and event.mark.phase == "forward":
            count, is_backward = count + 1, False
        found.append(count)
        is_backward = is_backward or isinstance(event, Root)
    return [*found, count + is_backward]
