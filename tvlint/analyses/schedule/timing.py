"""When each compute step of a schedule can start, how long ranks idle, and what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tvlint.analyses.schedule.messages import needed
from tvlint.analyses.schedule.steps import LAST_BACKWARDS, Step
from tvlint.ir.schedule import ActionKind

DURATIONS = {
    ActionKind.FORWARD: 1,
    ActionKind.INPUT_GRADIENT: 1,
    ActionKind.WEIGHT_GRADIENT: 1,
    ActionKind.BACKWARD: 2,
}
"""Units of time: a forward, an input gradient and a weight gradient of one chunk take as long as each other."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A compute step and when it starts."""

    step: Step
    start: int

    @property
    def end(self) -> int:
        """Return when it ends."""
        return self.start + DURATIONS[self.step.kind]


@dataclass(frozen=True, slots=True)
class Timing:
    """The compute steps of each rank in time, each as early as its rank and its inputs allow; messages take no time."""

    ranks: tuple[tuple[Timed, ...], ...]

    @property
    def makespan(self) -> int:
        """Return when the last step ends."""
        return max((row[-1].end for row in self.ranks if row), default=0)

    @property
    def idle(self) -> tuple[int, ...]:
        """Return how long each rank does nothing until the last step of all ends."""
        end = self.makespan
        return tuple(end - sum(timed.end - timed.start for timed in row) for row in self.ranks)

    @property
    def bubble(self) -> float:
        """Return the share of all ranks' time that is idle."""
        total = self.makespan * len(self.ranks)
        return sum(self.idle) / total if total else 0.0


def timing(steps: Iterable[Step], ranks: int, computes: Mapping[tuple[ActionKind, int, int], Step]) -> Timing | None:
    """Return the earliest times of all steps; None where ranks wait for each other forever.

    The members of an overlap start when all of them can and give nothing before the last of them ends.
    """
    rows: list[list[list[Step]]] = [[] for _ in range(ranks)]
    for step in steps:
        if step.computes:
            row = rows[step.rank]
            if row and row[-1][-1].position == step.position:
                row[-1].append(step)
            else:
                row.append([step])
    waits: dict[int, list[Step]] = {}
    for giver, taker in needed(computes).values():
        waits.setdefault(id(taker), []).append(giver)
    done: dict[int, int] = {}
    timed: list[list[Timed]] = [[] for _ in range(ranks)]
    at, free = [0] * ranks, [0] * ranks
    asleep: dict[int, list[int]] = {}
    awake = list(range(ranks))
    while awake:
        rank = awake.pop()
        while at[rank] < len(rows[rank]):
            block = rows[rank][at[rank]]
            givers = [giver for step in block for giver in waits.get(id(step), ())]
            missing = next((giver for giver in givers if id(giver) not in done), None)
            if missing is not None:
                asleep.setdefault(id(missing), []).append(rank)
                break
            start = max([free[rank], *(done[id(giver)] for giver in givers)])
            for step in block:
                timed[rank].append(Timed(step, start))
                start += DURATIONS[step.kind]
            done.update((id(step), start) for step in block)
            awake += [sleeper for step in block for sleeper in asleep.pop(id(step), ())]
            free[rank] = start
            at[rank] += 1
    if any(reached < len(row) for reached, row in zip(at, rows, strict=True)):
        return None
    return Timing(tuple(map(tuple, timed)))


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that a rank holds at a time, in micro-batches of one chunk, and the step that reaches it."""

    chunks: int
    step: Step


def peaks(steps: Iterable[Step]) -> dict[int, Peak]:
    """Return the largest number of activations in flight on each rank that computes.

    A chunk's activations for a micro-batch are there from its forward to the end of its backward; with a split backward, to
    its weight gradient.
    """
    held: dict[int, int] = {}
    found: dict[int, Peak] = {}
    for step in steps:
        if step.kind is ActionKind.FORWARD:
            held[step.rank] = held.get(step.rank, 0) + 1
            if step.rank not in found or held[step.rank] > found[step.rank].chunks:
                found[step.rank] = Peak(held[step.rank], step)
        elif step.kind in LAST_BACKWARDS:
            held[step.rank] = held.get(step.rank, 0) - 1
    return found
