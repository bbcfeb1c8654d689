"""Communicators: the ranks that run something in one agree on who its members are.

A plan names groups by their ranks. A program may have several communicators of the same ranks, and what one rank runs in one of
them never meets what another runs in another: such ranks use them in the same order. Whether they run the same collectives is
asked of the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeAlias

from tvlint.ir.location import Location
from tvlint.ir.mesh import Mesh
from tvlint.readers.capture.tapes.tape import Capture, Communication, Event, Tape, TapeDefect
from tvlint.readers.document import ReadError

Beside: TypeAlias = "tuple[Communication | None, Communication | None]"
"""What two members of a group run in the same place (None: nothing)."""


_HELP = "capture the program again: what is written here, no run of a program does"


def group_along(tape: Tape, axes: tuple[str, ...]) -> tuple[int, ...]:
    """Return the ranks along axes of a mesh that the program names, from this rank. Raises ReadError where there is none."""
    for named, ranks in tape.meshes:
        mesh = Mesh(named)
        if {axis.name for axis in named} >= set(axes) and tape.rank in ranks:
            return tuple(sorted(ranks[place] for place in mesh.along(ranks.index(tape.rank), axes)))
    text = f"no mesh of the capture has the axes {', '.join(axes)}"
    raise ReadError(text, Location(""), "give the mesh of distributed tensors names: `mesh_dim_names`")


def with_communicators(capture: Capture) -> Capture:
    """Return the capture with tags of messages that differ where their communicators do.

    Raises ReadError where ranks do not agree on a communicator.
    """
    _check_members(capture)
    _check_order(capture)
    keys = sorted(
        {
            (communication.communicator, communication.tag)
            for tape in capture.tapes
            for communication in _talk(tape)
            if communication.peer is not None
        }
    )
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


def _check_order(capture: Capture) -> None:
    """Let the members of a group that several communicators have use them in the same order."""
    for ranks, pairs in _side_by_side(capture):
        if len({communication.communicator for pair in pairs for communication in pair if communication is not None}) < 2:
            continue
        for here, there in pairs:
            if here is None or there is None or here.communicator != there.communicator:
                text = f"rank {ranks[0]} runs {_said(here)} where rank {ranks[1]} runs {_said(there)} in the same group"
                raise ReadError(text, _at(here or there, capture), _HELP)


def different_collectives(capture: Capture) -> TapeDefect | None:
    """Return the first place where two members of a communicator run different collectives, or reduce otherwise."""
    for ranks, pairs in _side_by_side(capture):
        for here, there in pairs:
            if here is not None and there is not None and _collective(here) != _collective(there):
                one, other = (
                    f"rank {rank} runs {_collective(communication)}"
                    for rank, communication in zip(ranks, (here, there), strict=True)
                )
                return TapeDefect("mismatched-collective", f"{one} where {other} in the same group", _at(here, capture), ranks)
    return None


def _side_by_side(capture: Capture) -> Iterator[tuple[tuple[int, int], list[Beside]]]:
    """Yield what the first and each other member of a group run in it, one beside the other."""
    by_group: dict[tuple[int, ...], dict[int, list[Communication]]] = {}
    for tape in capture.tapes:
        for event in _talk(tape):
            if event.peer is None:
                by_group.setdefault(tuple(sorted(event.group)), {}).setdefault(tape.rank, []).append(event)
    for group, by_rank in by_group.items():
        for rank in group[1:]:
            yield (group[0], rank), list(zip_longest(by_rank.get(group[0], []), by_rank.get(rank, [])))


def _collective(event: Communication) -> str:
    reduced = f" by {event.reduce}" if event.reduce else ""
    return f"{event.kind}{reduced}" if event.root is None else f"{event.kind}{reduced} of root {event.root}"


def _said(event: Communication | None) -> str:
    return "nothing" if event is None else f"{event.kind} in communicator `{event.communicator}`"


def _ranks(group: Sequence[int]) -> str:
    return ", ".join(map(str, group))


def _at(event: Communication | None, capture: Capture) -> Location:
    return (event and event.mark.place) or Location(capture.path)
