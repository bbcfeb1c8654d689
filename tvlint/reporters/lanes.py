"""The schedule of a plan, ranks that do the same together, and the proof stages in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvlint.ir.outline import Cell, Lane, Outline
from tvlint.ir.plan import Phase

_DURATION = {Phase.FORWARD: 2, Phase.BACKWARD: 4}
_WORST = ("refuted", "unknown", "")


@dataclass(frozen=True, slots=True)
class Stage:
    """One phase of one pipeline stage on one kind of rank, with the outcome of its proof."""

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


def length(cell: Cell) -> int:
    """Return how long a step is drawn: a backward twice as long as a forward, all else half as long."""
    return _DURATION.get(cell.phase, 1) if cell.computes else 1


def starts(lanes: list[Lane]) -> list[list[int]]:
    """Return when each step can start: after the one before it, and after its neighbour pipeline stage's of the micro-batch.

    A lane that waits for a step which never comes goes on as if it were there: order is for the rules to judge.
    """
    done: dict[tuple[Phase, int, int], int] = {}
    missing = Counter(_key(cell) for lane in lanes for cell in lane.cells if cell.computes)
    found: list[list[int]] = [[] for _ in lanes]
    free = [0] * len(lanes)
    while any(len(found[index]) < len(lane.cells) for index, lane in enumerate(lanes)):
        moved = False
        for index, lane in enumerate(lanes):
            while len(found[index]) < len(lane.cells):
                cell = lane.cells[len(found[index])]
                needs = _needs(cell)
                if any(missing[need] > 0 for need in needs):
                    break
                _run(lane, index, max([free[index], *(done.get(need, 0) for need in needs)]), found, free, done)
                missing[_key(cell)] -= cell.computes
                moved = True
        if not moved:
            stuck = next(index for index, lane in enumerate(lanes) if len(found[index]) < len(lane.cells))
            cell = lanes[stuck].cells[len(found[stuck])]
            _run(lanes[stuck], stuck, free[stuck], found, free, done)
            missing[_key(cell)] -= cell.computes
    return found


def _run(
    lane: Lane, index: int, start: int, starts: list[list[int]], free: list[int], done: dict[tuple[Phase, int, int], int]
) -> None:
    cell = lane.cells[len(starts[index])]
    starts[index].append(start)
    free[index] = start + length(cell)
    if cell.computes:
        done[_key(cell)] = max(done.get(_key(cell), 0), free[index])


def _key(cell: Cell) -> tuple[Phase, int, int]:
    return cell.phase, cell.pipeline_stage, cell.micro_batch


def _needs(cell: Cell) -> list[tuple[Phase, int, int]]:
    """Return the step of the neighbour pipeline stage that this one gets its input from."""
    if cell.pipeline_stage < 0 or cell.micro_batch < 0 or not cell.computes:
        return []
    if cell.phase is Phase.FORWARD:
        return [(Phase.FORWARD, cell.pipeline_stage - 1, cell.micro_batch)]
    if cell.phase is Phase.BACKWARD:
        return [(Phase.BACKWARD, cell.pipeline_stage + 1, cell.micro_batch)]
    return []
