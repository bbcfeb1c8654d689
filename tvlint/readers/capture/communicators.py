"""Communicators: the ranks that run something in one agree on who its members are and on what they run in it.

A plan names groups by their ranks. A program may have several communicators of the same ranks, and what one rank runs in one of
them never meets what another runs in another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeAlias

from tvlint.ir.location import Location
from tvlint.readers.capture.tape import Capture, Communication, Event, Tape
from tvlint.readers.document import ReadError

Collective: TypeAlias = tuple[str, str, str, int | None]
"""The communicator, the kind, the reduction and the root of a collective."""

_HELP = "capture the program again: what is written here, no run of a program does"


def with_communicators(capture: Capture) -> Capture:
    """Return the capture with tags of messages that differ where their communicators do.

    Raises ReadError where ranks do not agree on a communicator.
    """
    _check_members(capture)
    _check_collectives(capture)
    keys = sorted({(own.communicator, own.tag) for tape in capture.tapes for own in _talk(tape) if own.peer is not None})
    if len({communicator for communicator, _ in keys}) < 2:
        return capture
    tags = {key: number for number, key in enumerate(keys)}
    return replace(capture, tapes=tuple(replace(tape, events=_tagged(tape, tags)) for tape in capture.tapes))


def _tagged(tape: Tape, tags: dict[tuple[str, int], int]) -> tuple[Event, ...]:
    return tuple(
        replace(event, tag=tags[event.communicator, event.tag])
        if isinstance(event, Communication) and event.peer is not None
        else event
        for event in tape.events
    )


def _talk(tape: Tape) -> Iterator[Communication]:
    """Yield the communication of a rank up to the step of its optimizer."""
    yield from (event for event in tape.events if isinstance(event, Communication) and event.mark.phase != "optimizer")


def _check_members(capture: Capture) -> None:
    """Let each communicator have one list of members, of which each rank that uses it, and each peer, is one."""
    members: dict[str, tuple[int, ...]] = {}
    for tape in capture.tapes:
        for event in _talk(tape):
            known = members.setdefault(event.communicator or str(sorted(event.group)), event.group)
            if known != event.group:
                text = f"a communicator has the ranks {_ranks(known)} elsewhere, and {_ranks(event.group)} here"
                raise ReadError(text, _at(event, capture), _HELP)
            outside = {tape.rank, tape.rank if event.peer is None else event.peer} - set(event.group)
            if outside:
                text = f"rank {min(outside)} is no member of a communicator of the ranks {_ranks(event.group)}"
                raise ReadError(text, _at(event, capture), _HELP)


def _check_collectives(capture: Capture) -> None:
    """Let the members of a group run the same collectives in the same communicators, in the same order."""
    by_group: dict[tuple[int, ...], dict[int, list[Communication]]] = {}
    for tape in capture.tapes:
        for event in _talk(tape):
            if event.peer is None:
                by_group.setdefault(tuple(sorted(event.group)), {}).setdefault(tape.rank, []).append(event)
    for group, by_rank in by_group.items():
        for rank in group[1:]:
            _compare(by_rank.get(group[0], []), by_rank.get(rank, []), (group[0], rank), capture)


def _compare(one: Sequence[Communication], other: Sequence[Communication], ranks: tuple[int, int], capture: Capture) -> None:
    for here, there in zip_longest(one, other):
        if here is None or there is None or _collective(here) != _collective(there):
            found = here or there
            text = f"rank {ranks[0]} runs {_said(here)} where rank {ranks[1]} runs {_said(there)} in the same group"
            raise ReadError(text, _at(found, capture), _HELP)


def _collective(event: Communication) -> Collective:
    return event.communicator, event.kind, event.reduce, event.root


def _said(event: Communication | None) -> str:
    return "nothing" if event is None else f"{event.kind} in communicator `{event.communicator}`"


def _ranks(group: Sequence[int]) -> str:
    return ", ".join(map(str, group))


def _at(event: Communication, capture: Capture) -> Location:
    return event.mark.place or Location(capture.path)
