"""Placement of pipeline stages on ranks: one direction through the ranks, or two opposite ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from tvlint.analyses.schedule.steps import Step


class Shape(Enum):
    """Named placements of the pipeline stages of one direction on ranks, in the words of reports."""

    SINGLE = "pipeline stage s on rank s"
    LOOP = "pipeline stage s on rank s modulo the ranks"
    V = "pipeline stages down the ranks and up again"
    OTHER = "no known placement"


@dataclass(frozen=True, slots=True)
class Placement:
    """The rank of each pipeline stage in each direction, and the steps that stand on another one.

    In the second direction, where there is one, each pipeline stage is on the rank as far from the last as it is from the
    first in the first direction. Each micro-batch goes in one of them. `shape` is that of the first direction.
    """

    shape: Shape
    directions: tuple[Mapping[int, int], ...]
    ways: Mapping[int, int]
    """The direction of each micro-batch."""
    misplaced: tuple[Step, ...]

    def describe(self) -> str:
        """Return the placement in the words of reports."""
        if len(self.directions) == 1:
            return self.shape.value
        single = self.shape is Shape.SINGLE
        return f"every pipeline stage on two ranks, one for each direction{'' if single else f'; {self.shape.value}'}"

    def rank(self, stage: int, micro_batch: int) -> int | None:
        """Return where the pipeline stage runs the micro-batch; None where nothing runs it, or both directions may."""
        way = self.ways.get(micro_batch, 0 if len(self.directions) == 1 else -1)
        return self.directions[way].get(stage) if way >= 0 else None

    def ranks_of(self, stage: int) -> tuple[int, ...]:
        """Return all ranks that run the pipeline stage."""
        return tuple(sorted({direction[stage] for direction in self.directions if stage in direction}))

    def chunks(self, rank: int) -> tuple[int, ...]:
        """Return the pipeline stages on a rank, lowest first."""
        return tuple(sorted({stage for direction in self.directions for stage, home in direction.items() if home == rank}))

    def micro_batches(self, rank: int, held: int) -> float:
        """As how many micro-batches `held` of them count, each in one pipeline stage of the rank.

        A micro-batch in one of v chunks of its direction is one v-th.
        """
        return held / max(1, sum(home == rank for home in self.directions[0].values()))


def placement(steps: Iterable[Step], ranks: int) -> Placement:
    """Return what most compute steps say: of each pipeline stage or, where there are two directions, of each micro-batch."""
    chosen = tuple(steps)
    counts: dict[int, Counter[int]] = {}
    for step in chosen:
        if step.computes:
            counts.setdefault(step.stage, Counter())[step.rank] += 1
    homes = {stage: _most(count) for stage, count in counts.items()}
    directions: tuple[Mapping[int, int], ...] = (homes,)
    ways: dict[int, int] = {}
    if ranks % 2 == 0 and counts and all(_both_ways(count, ranks) for count in counts.values()):
        one = _one_direction(chosen, counts, ranks)
        directions = one, {stage: ranks - 1 - rank for stage, rank in one.items()}
        ways = _ways(chosen, directions)
    found = Placement(_shape(directions[0], ranks), directions, ways, ())
    misplaced = tuple(step for step in chosen if _is_misplaced(step, found))
    return Placement(found.shape, directions, ways, misplaced)


def _most(count: Counter[int]) -> int:
    """Return the rank that is counted most often, the lowest of several."""
    return min(count, key=lambda rank: (-count[rank], rank))


def _both_ways(count: Counter[int], ranks: int) -> bool:
    """Return whether a rank and its mirror image both run a fair share of a pipeline stage."""
    rank = _most(count)
    return min(count[rank], count[ranks - 1 - rank]) * 4 >= count.total()


def _one_direction(steps: tuple[Step, ...], counts: Mapping[int, Counter[int]], ranks: int) -> Mapping[int, int]:
    """Return the direction that most micro-batches take on all pipeline stages; one whose shape is known before others."""
    taken: dict[int, dict[int, int]] = {}
    for step in steps:
        if step.computes and step.rank in (rank := _most(counts[step.stage]), ranks - 1 - rank):
            taken.setdefault(step.micro_batch, {}).setdefault(step.stage, step.rank)
    whole = Counter(tuple(chunks[stage] for stage in sorted(chunks)) for chunks in taken.values() if len(chunks) == len(counts))
    found = [dict(zip(sorted(counts), way, strict=True)) for way, _ in whole.most_common()]
    found += [{stage: _most(count) for stage, count in counts.items()}]
    return next((way for way in found if _shape(way, ranks) is not Shape.OTHER), found[0])


def _ways(steps: tuple[Step, ...], directions: tuple[Mapping[int, int], ...]) -> dict[int, int]:
    """Return the direction of each micro-batch that more of its steps stand in."""
    votes: dict[int, Counter[int]] = {}
    for step in steps:
        for way, homes in enumerate(directions):
            if step.computes and homes.get(step.stage) == step.rank:
                votes.setdefault(step.micro_batch, Counter())[way] += 1
    return {micro_batch: _most(count) for micro_batch, count in votes.items()}


def _is_misplaced(step: Step, found: Placement) -> bool:
    """Return whether the step stands on another rank than its pipeline stage does for its micro-batch, or for any of all."""
    home = found.rank(step.stage, step.micro_batch)
    homes = found.ranks_of(step.stage) if home is None else (home,)
    return bool(homes) and step.rank not in homes


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
