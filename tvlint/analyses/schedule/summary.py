"""A pipeline schedule at a glance."""

from __future__ import annotations

from dataclasses import dataclass

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.family import family
from tvlint.analyses.schedule.timing import Timing, timing


@dataclass(frozen=True, slots=True)
class Summary:
    """The family of a schedule, the idle time of its ranks and what they hold.

    `timing` is None where ranks wait for each other forever. `peaks` are micro-batches in flight, rank by rank, as
    `Placement.micro_batches` counts them.
    """

    path: str
    family: str
    placement: str
    ranks: int
    stages: int
    micro_batches: int
    chunks: tuple[tuple[int, ...], ...]
    peaks: tuple[float, ...]
    timing: Timing | None


def summary(facts: ScheduleFacts) -> Summary:
    """Return the summary of a schedule."""
    ranks = range(len(facts.schedule.ranks))
    chunks = tuple(facts.placement.chunks(rank) for rank in ranks)
    held = [facts.peaks[rank].chunks if rank in facts.peaks else 0 for rank in ranks]
    return Summary(
        facts.schedule.path,
        family(facts),
        facts.placement.describe(),
        len(facts.schedule.ranks),
        facts.extent.stages,
        facts.extent.micro_batches,
        chunks,
        tuple(map(facts.placement.micro_batches, ranks, held)),
        timing(facts.steps, len(facts.schedule.ranks), facts.ordered_computes),
    )
