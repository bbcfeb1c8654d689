"""Recognise the family of a schedule."""

from __future__ import annotations

from collections.abc import Sequence

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.stage_placement import Shape
from tvlint.analyses.schedule.steps import BACKWARDS, Step
from tvlint.ir.schedule import ActionKind

UNKNOWN = "unknown"
MAXIMAL_KINDS = 64
"""Ranks with more different steps than that are not searched for a repetend."""


def family(facts: ScheduleFacts) -> str:
    """Return the name of the family: `1F1B`, `GPipe`, `ZBV`, ...; `unknown` where none fits or the schedule is not sound."""
    sound = not facts.schedule.unreadable and not facts.suspect and not facts.inversions
    if not sound or not facts.placed:
        return UNKNOWN
    rows = [[step for step in row if step.computes] for row in facts.rows]
    overlaps = any(action.members for row in facts.schedule.ranks for action in row.actions)
    splits = facts.kinds[ActionKind.INPUT_GRADIENT] > 0
    shape = facts.placement.shape
    if not any(facts.kinds[kind] for kind in BACKWARDS):
        return "forward only"
    if len(facts.placement.directions) > 1:
        named = _in_both_directions(shape, overlaps or splits)
    elif shape is Shape.V:
        named = _v(facts, overlaps, splits)
    elif shape is Shape.LOOP:
        named = _looped(facts, rows, overlaps, splits)
    elif shape is Shape.SINGLE:
        named = _single(facts, rows, splits)
    else:
        named = ""
    return named or _repetend(rows) or UNKNOWN


def _in_both_directions(shape: Shape, splits: bool) -> str:
    if shape is Shape.SINGLE:
        return "DualPipe" if splits else "Chimera"
    return "BitPipe" if shape is Shape.V else ""


def _single(facts: ScheduleFacts, rows: list[list[Step]], splits: bool) -> str:
    ranks, total = len(rows), facts.extent.micro_batches
    if not splits:
        if ranks > 1 and all(_warm_up(row) == total for row in rows):
            return "GPipe"
        if all(_warm_up(row) == min(total, ranks - rank) and _one_by_one(row) for rank, row in enumerate(rows)):
            return "1F1B"
        if all(_warm_up(row) == min(total, 2 * (ranks - rank) - 1) and _one_by_one(row) for rank, row in enumerate(rows)):
            return "eager 1F1B"
        return "Seq1F1B" if _in_sequences(rows, total) else ""
    if not all(_ascending(row) for row in rows):
        return ""
    most = max(peak.chunks for peak in facts.peaks.values())
    if most <= ranks and _warm_up(rows[0]) == min(total, ranks):
        return "ZB-H1"
    return "ZB-H2" if most <= 2 * ranks - 1 and _warm_up(rows[0]) == min(total, 2 * ranks - 1) else ""


def _in_sequences(rows: list[list[Step]], total: int) -> bool:
    """Return whether it is 1F1B on parts of sequences, which go backward last part first: the parts are its micro-batches."""
    parts = 1 + next((step.micro_batch for step in rows[-1] if step.kind in BACKWARDS), 0)
    last_first = [start + part for start in range(0, total, parts) for part in reversed(range(parts))]
    return parts > 1 and all(
        _warm_up(row) == min(total, len(rows) - rank + parts - 1)
        and _one_by_one(row)
        and [step.micro_batch for step in row if step.kind in BACKWARDS] == last_first
        for rank, row in enumerate(rows)
    )


def _looped(facts: ScheduleFacts, rows: list[list[Step]], overlaps: bool, splits: bool) -> str:
    total = facts.extent.micro_batches
    chunks = facts.extent.stages // max(1, len(rows))
    if overlaps:
        return "interleaved 1F1B with overlapped backward"
    if splits:
        return "interleaved zero-bubble" if all(_depth_first(row, total) for row in rows) else ""
    if all(_warm_up(row) == total * chunks for row in rows) and all(_breadth_first(row) for row in rows):
        return "looped BFS"
    if all(_depth_first(row, total) and _one_by_one(row) for row in rows):
        return "interleaved 1F1B"
    return ""


def _v(facts: ScheduleFacts, overlaps: bool, splits: bool) -> str:
    ranks = len(facts.schedule.ranks)
    waves = facts.extent.stages // (2 * ranks)
    if not overlaps and not splits:
        return f"Hanayo with {waves} wave{'' if waves == 1 else 's'}" if waves else ""
    if facts.extent.stages != 2 * ranks:
        return ""
    if overlaps:
        return "DualPipeV"
    most = max(facts.placement.micro_batches(rank, peak.chunks) for rank, peak in facts.peaks.items())
    return "V-Half" if most <= ranks / 2 + 1 < min(ranks, facts.extent.micro_batches) else "ZBV"


def _warm_up(row: Sequence[Step]) -> int:
    """Forwards before the first backward."""
    return next((index for index, step in enumerate(row) if step.kind is not ActionKind.FORWARD), len(row))


def _one_by_one(row: Sequence[Step]) -> bool:
    """Return whether forward and backward alternate from the last forward of the warm-up to the last forward of all."""
    first = max(0, _warm_up(row) - 1)
    last = max((index for index, step in enumerate(row) if step.kind is ActionKind.FORWARD), default=0)
    steady = row[first : last + 1]
    return all((step.kind is ActionKind.FORWARD) == (index % 2 == 0) for index, step in enumerate(steady))


def _ascending(row: Sequence[Step]) -> bool:
    """Return whether each kind takes the micro-batches in order."""
    for kind in ActionKind:
        numbers = [step.micro_batch for step in row if step.kind is kind]
        if numbers != sorted(numbers):
            return False
    return True


def _breadth_first(row: Sequence[Step]) -> bool:
    """Return whether all micro-batches go through a chunk before the next chunk has its turn."""
    forwards = [step.stage for step in row if step.kind is ActionKind.FORWARD]
    backwards = [step.stage for step in row if step.kind in BACKWARDS]
    return forwards == sorted(forwards) and backwards == sorted(backwards, reverse=True)


def _depth_first(row: Sequence[Step], total: int) -> bool:
    """Return whether groups of micro-batches go through all chunks, group after group."""
    forwards = [step for step in row if step.kind is ActionKind.FORWARD]
    chunks = sorted({step.stage for step in forwards})
    group = next((index for index, step in enumerate(forwards) if step.stage != chunks[0]), len(forwards))
    expected = [
        (stage, micro_batch)
        for start in range(0, total, max(1, group))
        for stage in chunks
        for micro_batch in range(start, min(start + group, total))
    ]
    return group > 0 and [(step.stage, step.micro_batch) for step in forwards] == expected


def _repetend(rows: list[list[Step]]) -> str:
    """Return the name of a schedule whose ranks repeat a block of steps, with later micro-batches, over at least half its
    length.
    """
    periods = [_period(row) for row in rows]
    if not periods or any(period is None for period in periods):
        return ""
    return f"repetend of {max(period for period in periods if period is not None)} steps"


def _period(row: Sequence[Step]) -> int | None:
    kinds = {(step.kind, step.stage) for step in row}
    if len(kinds) > MAXIMAL_KINDS:
        return None
    for period in range(len(kinds), 4 * len(kinds) + 1):
        if 0 < period * 3 <= len(row) and _repeats(row, period):
            return period
    return None


def _repeats(row: Sequence[Step], period: int) -> bool:
    """Return whether a run of steps, each doing again what `period` steps before did, holds three periods and half of the
    row.
    """
    best = run = 0
    for before, after in zip(row, row[period:], strict=False):
        again = (before.kind, before.stage) == (after.kind, after.stage) and after.micro_batch > before.micro_batch
        run = run + 1 if again else 0
        best = max(best, run)
    return best >= 2 * period and (best + period) * 2 >= len(row)
