"""Read captures as plans: a reference by itself, a parallel program with its reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tvlint.findings import Problem
from tvlint.ir.location import Location
from tvlint.ir.plan import Plan, Role
from tvlint.readers.capture.assemble import Lifting, lift_parallel, lift_reference, with_constants
from tvlint.readers.capture.lifting.program import Array
from tvlint.readers.capture.pairing import place_of, uses_of
from tvlint.readers.capture.tapes.communicators import different_collectives, group_along
from tvlint.readers.capture.tapes.in_flight import first_race
from tvlint.readers.capture.tapes.lines import read_capture
from tvlint.readers.capture.tapes.tape import Capture, Operation, Root, TapeDefect
from tvlint.readers.document import Document, ReadError

_RANDOM = ("dropout", "bernoulli", "rand", "normal", "uniform", "multinomial", "exponential")


@dataclass(frozen=True, slots=True)
class Recorded:
    """A plan that was lifted from a capture, and the numbers that the capture holds.

    `given` are those of weights, buffers and inputs, by rank, name and micro-batch (-1: all); `gradients` those that the
    optimizer found, by rank and weight; `losses` those of the loss, by rank and micro-batch; `after` those of weights behind
    the step of an optimizer of torch, by rank and weight, `clipped` those of gradients that it found clipped. `pieces` are
    the places of weights that ranks hold, where the gradients are comparable with a reference's. `random` says that the
    program draws random numbers; `defect` is a mistake that the tapes show by themselves: ranks that run different collectives
    together, or a buffer that is used before it is waited for. `problem` says why the plan has nothing of the program but what
    it is given. `backward` is where its last backward pass starts, `behind` the lines of what it does behind that.
    """

    plan: Plan
    given: Mapping[tuple[int, str, int], Array | None]
    gradients: Mapping[tuple[int, str], Array | None]
    losses: Mapping[int, tuple[Array | None, ...]]
    after: Mapping[tuple[int, str], Array | None]
    clipped: Mapping[tuple[int, str], Array | None]
    pieces: Mapping[tuple[int, str], tuple[slice | Array, ...]]
    random: bool
    defect: TapeDefect | None
    problem: Problem | None
    backward: Location | None = None
    behind: tuple[Location, ...] = ()


def read(path: str, data: bytes) -> Document:
    """Return the plan of a single-device capture. Raises ReadError for one of several ranks."""
    capture = read_capture(path, data)
    if capture.ranks > 1:
        text = f"a capture of {capture.ranks} ranks is read together with the single-device capture of the same program"
        raise ReadError(text, Location(path), f"tvlint prove {path} --reference REFERENCE")
    return Document(path, "capture", plan=lift_reference(capture).plan)


def read_pair(parallel: tuple[str, bytes], reference: tuple[str, bytes]) -> tuple[Recorded, Recorded]:
    """Return the plans and numbers of two captures, the parallel one first. Raises ReadError."""
    alone = lift_reference(read_capture(*reference))
    together = lift_parallel(read_capture(*parallel), alone)
    return _recorded(together), _recorded(with_constants(alone, together))


def read_alone(path: str, data: bytes) -> Recorded | None:
    """Return the plan and the numbers of a single-device capture; None for one of several ranks. Raises ReadError."""
    capture = read_capture(path, data)
    return _recorded(lift_reference(capture)) if capture.ranks == 1 else None


def _recorded(lifting: Lifting) -> Recorded:
    given: dict[tuple[int, str, int], Array | None] = {}
    gradients: dict[tuple[int, str], Array | None] = {}
    losses: dict[int, tuple[Array | None, ...]] = {}
    for rank, (prepared, names) in enumerate(zip(lifting.prepared, lifting.found.names, strict=True)):
        for use in uses_of(prepared):
            name = names[use.value]
            whole = lifting.found.wholes[name]
            key = use.mark.micro_batch if whole.role is Role.INPUT else -1
            numbers = use.given.numbers
            if numbers is not None and numbers.size == prod(whole.local) and whole.role is Role.INPUT:
                numbers = numbers.reshape(whole.local)
            given[rank, name, key] = numbers
        for weight, (_, numbers) in prepared.lifted.gradients.items():
            gradients[rank, weight] = numbers
        losses[rank] = tuple(root.number for root in prepared.lifted.losses)
    pieces = {
        (rank, name): place_of(held)
        for name, whole in lifting.found.wholes.items()
        if whole.role is Role.WEIGHT
        for rank, by in whole.held.items()
        for held in by.values()
        if held.sure
    }
    completed = _completed(lifting, gradients, [prepared.lifted.program.partial for prepared in lifting.prepared])
    clipped = _completed_clipped(lifting)
    defect = different_collectives(lifting.capture) or first_race(lifting.capture)
    programs = [prepared.lifted.program for prepared in lifting.prepared]
    after = {(rank, weight): array for rank, program in enumerate(programs) for weight, array in program.after.items()}
    draws, problem = _draws(lifting.capture), lifting.problem
    started, behind = _places(lifting.capture)
    return Recorded(lifting.plan, given, completed, losses, after, clipped, pieces, draws, defect, problem, started, behind)


def _places(capture: Capture) -> tuple[Location | None, tuple[Location, ...]]:
    """Return where the first rank starts its last backward pass, and where it clips gradients and steps its optimizers."""
    events = capture.tapes[0].events
    starts = [event.mark.place for event in events if isinstance(event, Root) and event.mark.place is not None]
    marks = [event.mark for event in events if isinstance(event, Operation)]
    behind = [mark.place for mark in marks if mark.phase == "optimizer" and mark.place is not None]
    return next(reversed(starts), None), tuple(dict.fromkeys(behind))


def _completed(
    lifting: Lifting, gradients: Mapping[tuple[int, str], Array | None], partial: Sequence[Mapping[str, tuple[str, ...]]]
) -> dict[tuple[int, str], Array | None]:
    """Return the gradients with the sums over ranks, along axes for each rank, that are left to the optimizer."""
    found = dict(gradients)
    for rank, tape in enumerate(lifting.capture.tapes):
        for weight, axes in partial[rank].items():
            parts = [gradients.get((member, weight)) for member in group_along(tape, axes)]
            known = [part for part in parts if part is not None]
            found[rank, weight] = sum(known[1:], known[0]) if known and len(known) == len(parts) else None
    return found


def _completed_clipped(lifting: Lifting) -> dict[tuple[int, str], Array | None]:
    """Return the clipped gradients with the sums over ranks that are left to the optimizer."""
    every = [prepared.lifted.program.clipped for prepared in lifting.prepared]
    numbers = {(rank, weight): array for rank, clipped in enumerate(every) for weight, (array, _) in clipped.items()}
    partial = [{weight: axes for weight, (_, axes) in clipped.items() if axes} for clipped in every]
    return _completed(lifting, numbers, partial)


def _draws(capture: Capture) -> bool:
    """Return whether an operator of the step draws random numbers."""
    return any(
        isinstance(event, Operation) and any(word in event.op for word in _RANDOM)
        for tape in capture.tapes
        for event in tape.events
    )
