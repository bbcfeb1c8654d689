"""Buffers in flight: what the program reads of a collective or message, or writes over it, before it waits.

This is asked of the tape, since passes that lift it put collectives and what reads them together. What torch itself issues in a
backward pass, as its reducer does, it waits for at the end of the pass: until then no node of it may touch the buffer. A node
that began before, and goes on, has run a pass of its own, as that of a checkpoint does; then that has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tvlint.findings import Related
from tvlint.ir.location import Location
from tvlint.readers.capture.tapes.tape import (
    Capture,
    Communication,
    Event,
    Gradient,
    Operation,
    Root,
    Tape,
    TapeDefect,
    Wait,
    tensors_in,
)
from tvlint.readers.capture.tapes.windows import overlap


@dataclass(frozen=True, slots=True)
class _Issued:
    """A buffer of a collective or message that is not waited for yet; it is only read there unless it is `written`."""

    event: Communication
    window: int
    written: bool


def first_race(capture: Capture) -> TapeDefect | None:
    """Return the first access to a buffer in flight on any rank; None where there is none."""
    return next((found for tape in capture.tapes for found in _races(tape, capture.path)), None)


def _races(tape: Tape, path: str) -> Iterator[TapeDefect]:
    in_flight: dict[int, list[_Issued]] = {}
    of_torch: dict[int, list[_Issued]] = {}
    begun: set[tuple[str, int]] = set()
    last: tuple[str, int] | None = None
    for event in tape.events:
        if isinstance(event, Wait):
            for known in (in_flight, of_torch):
                for storage, issued in list(known.items()):
                    left = [each for each in issued if each.event.work != event.work]
                    known[storage] = left
                    if not left:
                        del known[storage]
            continue
        within = isinstance(event, Operation | Communication) and bool(event.mark.node)
        node = _node(event)
        if not within or (node != last and node in begun):
            of_torch.clear()
        last = node
        if node is not None:
            begun.add(node)
        for rule, text, cause in (*_conflicts(tape, event, in_flight), *_conflicts(tape, event, of_torch)):
            here, there = event.mark.place if isinstance(event, Operation | Communication | Root) else None, cause.mark.place
            related = () if here is None or there is None else (Related(f"the `{cause.kind}` is issued here", there),)
            yield TapeDefect(rule, f"{text} on rank {tape.rank}", here or there or Location(path), (tape.rank,), related)
        if isinstance(event, Communication) and event.mark.phase != "optimizer" and (within or not event.completes):
            known = of_torch if event.completes else in_flight
            buffers = [(number, True) for number in event.outputs] if event.kind != "send" else []
            for number, written in (*buffers, *((number, False) for number in event.inputs)):
                known.setdefault(tape.windows[number].storage, []).append(_Issued(event, number, written))


def _node(event: Event) -> tuple[str, int] | None:
    """Return the node of a backward pass that an event belongs to, where the operator tells it from others of its name."""
    if not isinstance(event, Operation | Communication) or event.mark.of < 0:
        return None
    return event.mark.node, event.mark.of


def _conflicts(tape: Tape, event: Event, in_flight: dict[int, list[_Issued]]) -> Iterator[tuple[str, str, Communication]]:
    """Yield the rule, what is wrong, and what was issued, for each access of an event to a buffer in flight."""
    if not in_flight:
        return
    reads, writes = _accesses(event)
    for number, is_write in (*((number, False) for number in reads), *((number, True) for number in writes)):
        window = tape.windows[number]
        for issued in in_flight.get(window.storage, ()):
            if not (issued.written or is_write) or not overlap(tape.windows[issued.window], window):
                continue
            kind = issued.event.kind
            if is_write:
                yield "buffer-in-flight", f"a buffer of the `{kind}` is overwritten before it is waited for", issued.event
            else:
                yield "missing-wait", f"what the `{kind}` writes is read before it is waited for", issued.event


def _accesses(event: Event) -> tuple[Iterable[int], Iterable[int]]:
    """Return the tensors that an event reads, and those that it writes."""
    if isinstance(event, Operation):
        return tensors_in(tuple(event.arguments.values())), (*event.writes, *event.outputs)
    if isinstance(event, Communication):
        return event.inputs, () if event.kind == "send" else event.outputs
    if isinstance(event, Root):
        return (event.window, *(() if event.start is None else (event.start,))), ()
    return ((event.window,), ()) if isinstance(event, Gradient) else ((), ())
