"""Facts that checks of pipeline schedules share, each computed once, on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from tvlint.analyses.schedule.coverage import Fault, faults
from tvlint.analyses.schedule.extent import Extent, extent
from tvlint.analyses.schedule.messages import Messages, messages
from tvlint.analyses.schedule.order import Deadlock, Inversion, buffered, inversions, rendezvous
from tvlint.analyses.schedule.reductions import Reductions, reductions
from tvlint.analyses.schedule.stage_placement import Placement, placement
from tvlint.analyses.schedule.steps import Step, steps
from tvlint.analyses.schedule.timing import Peak, peaks
from tvlint.analyses.schedule.unshards import Unshards, unshards
from tvlint.analyses.schedule.waits import Waits, waits
from tvlint.ir.schedule import ActionKind, Schedule

_Place: TypeAlias = tuple[ActionKind, int, int | None]


@dataclass(frozen=True)
class ScheduleFacts:
    """A schedule and what follows from it.

    `budget` is how many micro-batches of activations a rank may hold at a time, where somebody says so.
    """

    schedule: Schedule
    budget: int | None = None

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Return every action at its place, rank by rank; the members of an overlap stand for it."""
        return tuple(steps(self.schedule))

    @cached_property
    def kinds(self) -> Counter[ActionKind]:
        """Return how often each kind of action occurs."""
        return Counter(step.kind for step in self.steps)

    @cached_property
    def extent(self) -> Extent:
        """Return how many pipeline stages and micro-batches there are, and what is beyond them."""
        return extent(self.steps)

    @cached_property
    def placement(self) -> Placement:
        """Return which rank runs which pipeline stage, and what is run elsewhere."""
        return placement(self.within, len(self.schedule.ranks))

    @cached_property
    def within(self) -> tuple[Step, ...]:
        """Return the steps on pipeline stages and micro-batches that exist."""
        outside = {id(step) for step in (*self.extent.stray_stages, *self.extent.stray_micro_batches)}
        return tuple(step for step in self.steps if id(step) not in outside)

    @cached_property
    def placed(self) -> tuple[Step, ...]:
        """Return the steps within the schedule's extent that stand on the rank of their pipeline stage."""
        elsewhere = {id(step) for step in self.placement.misplaced}
        return tuple(step for step in self.within if id(step) not in elsewhere)

    @cached_property
    def computes(self) -> dict[tuple[ActionKind, int, int], list[Step]]:
        """Return the compute steps by kind, pipeline stage and micro-batch."""
        found: dict[tuple[ActionKind, int, int], list[Step]] = {}
        for step in self.within:
            if step.computes:
                found.setdefault((step.kind, step.stage, step.micro_batch), []).append(step)
        return found

    @cached_property
    def faults(self) -> tuple[Fault, ...]:
        """Return what is computed never or repeatedly."""
        return tuple(faults(self.computes))

    def strays_for(self, kinds: Collection[ActionKind], stage: int, micro_batch: int, rank: int | None) -> int:
        """Return how many strays of a rank probably stand for an action that is missing: they are right but for one number."""
        by_stage, by_micro_batch = self._strays
        return sum(by_stage[kind, stage, rank] + by_micro_batch[kind, micro_batch, rank] for kind in kinds)

    @cached_property
    def _strays(self) -> tuple[Counter[_Place], Counter[_Place]]:
        """Strays whose pipeline stage is right, and strays whose micro-batch is."""
        return (
            Counter((step.kind, step.stage, step.rank) for step in self.extent.stray_micro_batches),
            Counter((step.kind, step.micro_batch, step.rank) for step in self.extent.stray_stages),
        )

    @cached_property
    def inversions(self) -> tuple[Inversion, ...]:
        """Steps of one rank that stand before what they need."""
        return tuple(inversions(self.sound_computes))

    @cached_property
    def suspect(self) -> frozenset[tuple[int, int]]:
        """Pipeline stages and micro-batches whose compute steps are not once each at their place."""
        found = {(fault.stage, fault.micro_batch) for fault in self.faults}
        strays = (*self.placement.misplaced, *self.extent.stray_stages, *self.extent.stray_micro_batches)
        return frozenset(found | {(step.stage, step.micro_batch) for step in strays})

    @cached_property
    def sound_computes(self) -> dict[tuple[ActionKind, int, int], Step]:
        """Return the compute steps of pipeline stages and micro-batches that are not suspect."""
        suspect = self.suspect
        return {key: found[0] for key, found in self.computes.items() if key[1:] not in suspect}

    @cached_property
    def ordered_computes(self) -> dict[tuple[ActionKind, int, int], Step]:
        """Return the sound compute steps, without those that stand in the wrong order on their rank."""
        wrong = {(step.stage, step.micro_batch) for pair in self.inversions for step in (pair.early, pair.late)}
        return {key: step for key, step in self.sound_computes.items() if key[1:] not in wrong}

    @cached_property
    def sends(self) -> bool:
        """Return whether the schedule spells its messages out."""
        return any(kind.value.startswith(("SEND", "RECV")) for kind in self.kinds)

    @cached_property
    def messages(self) -> Messages:
        """Return the sends and receives, by message."""
        return messages(self.placed, self.placement, self.ordered_computes, self.extent)

    @cached_property
    def buffered(self) -> Deadlock | None:
        """Return where ranks wait for each other although every send completes at once."""
        return buffered(self.steps, self.ordered_computes, self.messages if self.sends else None)

    @cached_property
    def rendezvous(self) -> Deadlock | None:
        """Return where ranks wait for each other when a send waits for its receive."""
        return rendezvous(self.steps, self.ordered_computes, self.messages) if self.sends else None

    @cached_property
    def waits(self) -> Waits:
        """Return sends and gradient reductions that nothing waits for, and waits for nothing."""
        return waits(self.placed_rows, self.kinds)

    @cached_property
    def unshards(self) -> Unshards:
        """Return where parameters are whole, and where they are not although they should be."""
        return unshards(self.placed_rows)

    @cached_property
    def reductions(self) -> Reductions:
        """Return what is wrong with the gradient reductions."""
        return reductions(self.placed_rows)

    @cached_property
    def peaks(self) -> dict[int, Peak]:
        """Return the most micro-batches that each rank holds activations of."""
        return peaks(self.steps)

    @cached_property
    def rows(self) -> tuple[tuple[Step, ...], ...]:
        """Return the steps of each rank, in order."""
        return self._by_rank(self.steps)

    @cached_property
    def placed_rows(self) -> tuple[tuple[Step, ...], ...]:
        """Return the steps of each rank that stand on pipeline stages and micro-batches that it has, in order."""
        return self._by_rank(self.placed)

    def _by_rank(self, steps: Iterable[Step]) -> tuple[tuple[Step, ...], ...]:
        rows: list[list[Step]] = [[] for _ in self.schedule.ranks]
        for step in steps:
            rows[step.rank].append(step)
        return tuple(map(tuple, rows))
