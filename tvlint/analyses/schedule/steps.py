"""The actions of a schedule, each at its rank and position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tvlint.ir.location import Location
from tvlint.ir.ranks import compact
from tvlint.ir.schedule import COMPUTE, Action, ActionKind, Schedule

BACKWARDS = (ActionKind.BACKWARD, ActionKind.INPUT_GRADIENT)
"""The kinds that give the gradient of the input, which the pipeline stage before waits for."""
LAST_BACKWARDS = (ActionKind.BACKWARD, ActionKind.WEIGHT_GRADIENT)
"""The kinds after which nothing of a micro-batch is kept."""
_WORDS = {
    ActionKind.FORWARD: "forward",
    ActionKind.BACKWARD: "backward",
    ActionKind.INPUT_GRADIENT: "input gradient",
    ActionKind.WEIGHT_GRADIENT: "weight gradient",
}


@dataclass(frozen=True, slots=True)
class Step:
    """An action as the `position`-th of `rank`; the members of an overlap share a position."""

    rank: int
    position: int
    action: Action

    @property
    def kind(self) -> ActionKind:
        """Return what it does."""
        return self.action.kind

    @property
    def stage(self) -> int:
        """The pipeline stage it is about."""
        return self.action.stage

    @property
    def micro_batch(self) -> int:
        """The micro-batch it is about; -1 for all."""
        return self.action.micro_batch

    @property
    def computes(self) -> bool:
        """Return whether it is a forward or a part of a backward."""
        return self.action.kind in COMPUTE

    @property
    def location(self) -> Location:
        """Return its cell."""
        return self.action.location

    def __str__(self) -> str:
        return f"`{self.action}`"


def steps(schedule: Schedule) -> Iterator[Step]:
    """Yield the steps of all ranks, rank by rank."""
    for rank, row in enumerate(schedule.ranks):
        for position, action in enumerate(row.actions):
            for member in action.members or (action,):
                yield Step(rank, position, member)


def words(kind: ActionKind) -> str:
    """Return the kind in words: `forward`, `weight gradient`, or as it is spelled."""
    return _WORDS.get(kind, f"`{kind.value}`")


def numbered(noun: str, numbers: Iterable[int]) -> str:
    """`micro-batch 3`, `micro-batches 0-2,5`."""
    chosen = sorted(set(numbers))
    plural = noun + ("es" if noun.endswith("ch") else "s")
    return f"{noun if len(chosen) == 1 else plural} {compact(chosen)}"
