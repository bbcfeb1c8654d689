"""Schedules with one mistake each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.schedules.families import Rows
from tests.schedules.lowering import CELL, parts


@dataclass(frozen=True)
class Mutant:
    """A broken schedule, how it was broken, and the cell that was touched."""

    how: str
    cell: str
    rows: Rows


def mutants(rows: Rows, seed: int, each: int) -> Iterator[Mutant]:
    """`each` mutants of every kind: drop, duplicate, swap, move, micro-batch and stage range, kind."""
    chance = random.Random(seed)
    places = [(rank, at) for rank, row in enumerate(rows) for at in range(len(row))]
    for _ in range(each):
        rank, at = chance.choice(places)
        cell = rows[rank][at]
        yield Mutant("drop", cell, _with(rows, rank, rows[rank][:at] + rows[rank][at + 1 :]))
        yield Mutant("duplicate", cell, _with(rows, rank, [*rows[rank][: at + 1], *rows[rank][at:]]))
        other = chance.randrange(len(rows[rank]))
        swapped = list(rows[rank])
        swapped[at], swapped[other] = swapped[other], swapped[at]
        if swapped != rows[rank]:
            yield Mutant("swap", cell, _with(rows, rank, swapped))
        if len(rows) > 1:
            to = chance.choice([r for r in range(len(rows)) if r != rank])
            moved = _with(rows, rank, rows[rank][:at] + rows[rank][at + 1 :])
            where = chance.randrange(len(rows[to]) + 1)
            yield Mutant("move", cell, _with(moved, to, [*rows[to][:where], cell, *rows[to][where:]]))
        stages = 1 + max(s for row in rows for c in row for s, _, _ in parts(c))
        yield Mutant("stage", cell, _with(rows, rank, _changed(rows[rank], at, stage=stages + chance.randrange(3))))
        if any(i >= 0 for _, _, i in parts(cell)):
            count = 1 + max(i for row in rows for c in row for _, _, i in parts(c))
            yield Mutant("range", cell, _with(rows, rank, _changed(rows[rank], at, micro_batch=count + chance.randrange(3))))


def _with(rows: Rows, rank: int, row: list[str]) -> Rows:
    return [row if index == rank else list(other) for index, other in enumerate(rows)]


def _changed(row: list[str], at: int, stage: int | None = None, micro_batch: int | None = None) -> list[str]:
    match = CELL.search(row[at])
    assert match is not None
    number = match[1] if stage is None else str(stage)
    last = match[3] if micro_batch is None or not match[3] else str(micro_batch)
    cell = row[at][: match.start()] + f"{number}{match[2]}{last}" + row[at][match.end() :]
    return [*row[:at], cell, *row[at + 1 :]]
