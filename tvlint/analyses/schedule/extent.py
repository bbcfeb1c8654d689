"""Infer the numbers of pipeline stages and micro-batches of a schedule; a CSV file does not state them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tvlint.analyses.schedule.steps import BACKWARDS, Step
from tvlint.ir.schedule import ActionKind


@dataclass(frozen=True, slots=True)
class Extent:
    """The number of pipeline stages and of micro-batches, what is never run below them and what is beyond them."""

    stages: int
    micro_batches: int
    missing_stages: tuple[tuple[int, int], ...]
    """First and last of each run of pipeline stages that no rank runs."""
    missing_micro_batches: tuple[tuple[int, int], ...]
    """First and last of each run of micro-batches that no pipeline stage runs."""
    stray_stages: tuple[Step, ...]
    stray_micro_batches: tuple[Step, ...]


def extent(steps: Iterable[Step]) -> Extent:
    """Return what the majority of the compute steps say.

    A pipeline stage counts when it runs more than half of what the middle one runs; a micro-batch when more than half of its
    forwards and backwards are there, or half of them and it follows the others without a gap.
    """
    chosen = tuple(steps)
    done = {(step.kind in BACKWARDS, step.stage, step.micro_batch) for step in chosen if _counts(step)}
    per_stage = Counter(stage for _, stage, _ in done)
    counts = sorted(per_stage.values())
    middle = counts[len(counts) // 2] if counts else 0
    real = {stage for stage, count in per_stage.items() if count * 2 > middle}
    stages = max(real, default=-1) + 1
    per_micro_batch = Counter(micro_batch for _, stage, micro_batch in done if stage < stages)
    whole = len([stage for stage in per_stage if stage < stages]) * len({backward for backward, _, _ in done})
    micro_batches = max((number for number, count in per_micro_batch.items() if count * 2 > whole), default=-1) + 1
    while per_micro_batch[micro_batches] * 2 >= max(1, whole):
        micro_batches += 1
    if not micro_batches:
        micro_batches = max(per_micro_batch, default=-1) + 1
    return Extent(
        stages,
        micro_batches,
        _gaps([stage for stage in per_stage if stage < stages], stages),
        _gaps([number for number in per_micro_batch if number < micro_batches], micro_batches),
        tuple(step for step in chosen if step.stage >= stages),
        tuple(step for step in chosen if step.stage < stages and step.micro_batch >= micro_batches),
    )


def _counts(step: Step) -> bool:
    return step.kind is ActionKind.FORWARD or step.kind in BACKWARDS


def _gaps(present: list[int], end: int) -> tuple[tuple[int, int], ...]:
    gaps = []
    before = -1
    for number in [*sorted(set(present)), end]:
        if number > before + 1:
            gaps.append((before + 1, number - 1))
        before = number
    return tuple(gaps)
