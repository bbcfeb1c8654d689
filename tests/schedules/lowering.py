"""Spell out the communication of a compute-only schedule, as a correct runtime would."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from tests.schedules.families import Rows

CELL = re.compile(r"([0-9]+)([A-Z_]+)([0-9]*)")


def parts(cell: str) -> list[tuple[int, str, int]]:
    """Pipeline stage, kind and micro-batch (-1: none) of a cell; of both members of an overlap."""
    return [(int(s), kind, int(i) if i else -1) for s, kind, i in CELL.findall(cell.replace("OVERLAP_F_B", ""))]


def homes(rows: Rows) -> dict[tuple[int, int], int]:
    """The rank that runs each pipeline stage forward, by micro-batch."""
    return {
        (s, i): rank for rank, row in enumerate(rows) for cell in row for s, kind, i in parts(cell) if kind == "F"
    }  # fmt: skip


def order(rows: Rows) -> Iterator[tuple[int, str]]:
    """The cells in an order in which they can run, as far as there is one."""
    at = [0] * len(rows)
    done: set[tuple[int, str, int]] = set()
    last = max(s for row in rows for cell in row for s, _, _ in parts(cell))

    def ready(s: int, kind: str, i: int) -> bool:
        if kind == "F":
            return s == 0 or (s - 1, "F", i) in done
        if kind == "W":
            return (s, "I", i) in done
        above = s == last or (s + 1, "B", i) in done or (s + 1, "I", i) in done
        return above and (s, "F", i) in done

    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            if at[rank] < len(row) and all(ready(*part) for part in parts(row[at[rank]])):
                done.update(parts(row[at[rank]]))
                yield rank, row[at[rank]]
                at[rank] += 1
                moved = True


def lowered(rows: Rows, waits: bool = True) -> Rows:
    """The schedule with unshards, messages, waits and gradient reductions; receives stand where their sends run."""
    home = homes(rows)
    last = max(s for s, _ in home)
    spelled: Rows = [[] for _ in rows]
    stages = [sorted({s for cell in row for s, _, _ in parts(cell)}) for row in rows]
    for rank, own in enumerate(stages):
        spelled[rank] += [f"{s}UNSHARD" for s in own]
    open_sends: list[list[str]] = [[] for _ in rows]
    ended: Counter[tuple[int, int]] = Counter()
    share = Counter((rank, s) for (s, _), rank in home.items())
    for rank, cell in order(rows):
        if waits and len(open_sends[rank]) > 2:
            spelled[rank].append(open_sends[rank].pop(0))
        spelled[rank].append(cell)
        for s, kind, i in parts(cell):
            target = s + 1 if kind == "F" else s - 1
            if kind != "W" and 0 <= target <= last and home[target, i] != rank:
                way = "F" if kind == "F" else "B"
                spelled[rank].append(f"{s}SEND_{way}{i}")
                spelled[home[target, i]].append(f"{target}RECV_{way}{i}")
                open_sends[rank].append(f"{s}WAIT_SEND_{way}{i}")
            if kind in "BW":
                ended[rank, s] += 1
                if ended[rank, s] == share[rank, s]:
                    spelled[rank].append(f"{s}REDUCE_GRAD")
    for rank, own in enumerate(stages):
        if waits:
            spelled[rank] += open_sends[rank] + [f"{s}WAIT_REDUCE_GRAD" for s in own]
        spelled[rank] += [f"{s}RESHARD" for s in own]
    return spelled


def text(rows: Rows) -> str:
    """The schedule as CSV."""
    return "".join(",".join(row) + "\r\n" for row in rows)
