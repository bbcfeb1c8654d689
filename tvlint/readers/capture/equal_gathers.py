"""Gathers of flat buffers that each rank of the group holds whole already, as was recorded at the beginning of the step.

A distributed optimizer that gathers weights while the next step begins also gathers them in the first step, where all ranks
have initialised all of them. Each rank's part of the buffer lies in its place of the buffer that takes all parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tvlint.readers.capture.recorded_numbers import part_of
from tvlint.readers.capture.tapes.tape import Capture, Communication, Given, Operation, Tape
from tvlint.readers.capture.tapes.windows import count, is_flat


def without_equal_gathers(capture: Capture) -> Capture:
    """Return the capture without gathers that leave the buffer of each rank as it was, and nothing has written before."""
    gathers = [list(_gathers(tape)) for tape in capture.tapes]
    same: set[int] = set()
    for group in {event.group for each in gathers for event in each}:
        members = [[event for event in gathers[rank] if event.group == group] for rank in group]
        if len({len(events) for events in members}) > 1:
            continue
        for events in zip(*members, strict=True):
            if _are_equal([capture.tapes[rank] for rank in group], events):
                same.update(map(id, events))
    if not same:
        return capture
    tapes = [replace(tape, events=tuple(each for each in tape.events if id(each) not in same)) for tape in capture.tapes]
    return replace(capture, tapes=tuple(tapes))


def _gathers(tape: Tape) -> Iterator[Communication]:
    """Yield the gathers into flat buffers of the rank's own part of each, which hold what they held when the step began."""
    written: set[int] = set()
    for event in tape.events:
        if isinstance(event, Communication) and _is_in_place(tape, event) and not written & _storages(tape, event.outputs):
            yield event
        elif isinstance(event, Communication):
            written |= _storages(tape, event.outputs)
        elif isinstance(event, Operation):
            written |= _storages(tape, event.writes)


def _storages(tape: Tape, windows: Sequence[int]) -> set[int]:
    return {tape.windows[number].storage for number in windows}


def _is_in_place(tape: Tape, event: Communication) -> bool:
    """Return whether a gather takes the rank's part out of the very place to which it comes back."""
    if event.kind != "all-gather" or len(event.inputs) != 1 or len(event.outputs) != 1 or tape.rank not in event.group:
        return False
    part, whole = tape.windows[event.inputs[0]], tape.windows[event.outputs[0]]
    if not is_flat(part) or not is_flat(whole) or (part.storage, part.dtype) != (whole.storage, whole.dtype):
        return False
    place = event.group.index(tape.rank) * count(part)
    return count(part) * len(event.group) == count(whole) and part.offset == whole.offset + place


def _are_equal(tapes: Sequence[Tape], events: Sequence[Communication]) -> bool:
    """Return whether all ranks began with the same numbers in the buffers that they gather."""
    held = []
    for tape, event in zip(tapes, events, strict=True):
        whole = tape.windows[event.outputs[0]]
        given = next((each for each in tape.events if isinstance(each, Given) and each.storage == whole.storage), None)
        numbers = part_of(given, whole) if given is not None else None
        if numbers is None:
            return False
        held.append(numbers)
    return all(each.shape == held[0].shape and bool((each == held[0]).all()) for each in held)
