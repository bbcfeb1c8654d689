"""The schedule of a plan, ranks that do the same together, and the proof stages in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvlint.ir.outline import Cell, Lane, Outline
from tvlint.ir.plan import Phase

_WORST = ("refuted", "unknown", "")


@dataclass(frozen=True, slots=True)
class Stage:
    """What one kind of rank computes in one phase of one pipeline stage, and what a proof found there."""

    ranks: tuple[int, ...]
    phase: Phase
    pipeline_stage: int
    judged: str


def merged(lanes: Sequence[Lane]) -> list[Lane]:
    """Return the lanes, those of ranks that do the same, step by step, as one."""
    ranks: dict[tuple[Cell, ...], list[int]] = {}
    for lane in lanes:
        ranks.setdefault(lane.cells, []).extend(lane.ranks)
    return [Lane(tuple(sorted(members)), cells) for cells, members in ranks.items()]


def proof_stages(outline: Outline) -> Iterator[Stage]:
    """Yield the proof stages of the plan: what each kind of rank computes, whichever micro-batch it is."""
    for lane in merged(outline.lanes):
        found: dict[tuple[Phase, int], str] = {}
        for cell in lane.cells:
            if cell.computes:
                key = (cell.phase, cell.pipeline_stage)
                found[key] = min(found.get(key, ""), cell.judged, key=_WORST.index)
        for (phase, pipeline_stage), judged in found.items():
            yield Stage(lane.ranks, phase, pipeline_stage, judged)
