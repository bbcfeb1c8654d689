"""Placement of pipeline stages on ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from tvlint.analyses.schedule.steps import Step


class Shape(Enum):
    """Named placements of pipeline stages on ranks, in the words of reports."""

    SINGLE = "pipeline stage s on rank s"
    LOOP = "pipeline stage s on rank s modulo the ranks"
    V = "pipeline stages down the ranks and up again"
    BIDIRECTIONAL = "every pipeline stage on two ranks, one for each direction"
    OTHER = "no known placement"


@dataclass(frozen=True, slots=True)
class Placement:
    """The rank of each pipeline stage, and the steps that stand on another one.

    With two directions the rank depends on the micro-batch too, as `directions` says.
    """

    shape: Shape
    ranks: Mapping[int, int]
    directions: Mapping[tuple[int, int], int]
    misplaced: tuple[Step, ...]
    stages: Mapping[int, tuple[int, ...]]
    """The pipeline stages of each rank, lowest first."""

    def rank(self, stage: int, micro_batch: int) -> int | None:
        """Return where the pipeline stage runs the micro-batch; None where nothing runs it."""
        found = self.directions.get((stage, micro_batch))
        return self.ranks.get(stage) if found is None else found

    def ranks_of(self, stage: int) -> tuple[int, ...]:
        """All ranks that run the pipeline stage."""
        return tuple(sorted(rank for rank, stages in self.stages.items() if stage in stages))

    def chunks(self, rank: int) -> tuple[int, ...]:
        """The pipeline stages on a rank, lowest first."""
        return self.stages.get(rank, ())

    def micro_batches(self, rank: int, held: int) -> float:
        """As how many micro-batches `held` of them count, each in one pipeline stage of the rank.

        A micro-batch in one of v chunks is one v-th. With two directions every rank has two whole pipeline stages.
        """
        return float(held) if self.shape is Shape.BIDIRECTIONAL else held / max(1, len(self.chunks(rank)))


def placement(steps: Iterable[Step], ranks: int) -> Placement:
    """Return what most compute steps of each pipeline stage say."""
    chosen = tuple(steps)
    counts: dict[int, Counter[int]] = {}
    for step in chosen:
        if step.computes:
            counts.setdefault(step.stage, Counter())[step.rank] += 1
    if _two_directions(counts, ranks):
        return _bidirectional(chosen)
    homes = {stage: min(count, key=lambda rank: (-count[rank], rank)) for stage, count in counts.items()}
    misplaced = tuple(step for step in chosen if homes.get(step.stage, step.rank) != step.rank)
    return Placement(_shape(homes, ranks), homes, {}, misplaced, _stages(homes.items()))


def _two_directions(counts: Mapping[int, Counter[int]], ranks: int) -> bool:
    """Return whether each pipeline stage runs a fair share on rank s and on its mirror image, as in DualPipe."""
    if ranks < 2 or ranks % 2 or set(counts) != set(range(ranks)):
        return False
    return all(min(count[stage], count[ranks - 1 - stage]) * 4 >= count.total() for stage, count in counts.items())


def _bidirectional(steps: tuple[Step, ...]) -> Placement:
    counts: dict[tuple[int, int], Counter[int]] = {}
    for step in steps:
        if step.computes:
            counts.setdefault((step.stage, step.micro_batch), Counter())[step.rank] += 1
    homes = {key: min(count, key=lambda rank: (-count[rank], rank)) for key, count in counts.items()}
    either: dict[int, set[int]] = {}
    for (stage, _), rank in homes.items():
        either.setdefault(stage, set()).add(rank)

    def away(step: Step) -> bool:
        if step.micro_batch < 0:
            return step.rank not in either.get(step.stage, {step.rank})
        return homes.get((step.stage, step.micro_batch), step.rank) != step.rank

    misplaced = tuple(step for step in steps if away(step))
    stages = _stages((stage, rank) for (stage, _), rank in homes.items())
    return Placement(Shape.BIDIRECTIONAL, {}, homes, misplaced, stages)


def _stages(pairs: Iterable[tuple[int, int]]) -> dict[int, tuple[int, ...]]:
    found: dict[int, set[int]] = {}
    for stage, rank in pairs:
        found.setdefault(rank, set()).add(stage)
    return {rank: tuple(sorted(stages)) for rank, stages in found.items()}


def _shape(homes: Mapping[int, int], ranks: int) -> Shape:
    stages = len(homes)
    if set(homes) != set(range(stages)) or not stages:
        return Shape.OTHER
    if stages == ranks and all(homes[stage] == stage for stage in homes):
        return Shape.SINGLE
    if stages > ranks and all(homes[stage] == stage % ranks for stage in homes):
        return Shape.LOOP
    if ranks > 1 and stages % ranks == 0 and all(homes[stage] == _zigzag(stage, ranks) for stage in homes):
        return Shape.V
    return Shape.OTHER


def _zigzag(stage: int, ranks: int) -> int:
    turn, place = divmod(stage, ranks)
    return ranks - 1 - place if turn % 2 else place
