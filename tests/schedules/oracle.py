"""Run a schedule on tokens: the judge of mutants, written apart from the checks."""

from __future__ import annotations

from collections import deque

from tests.schedules.families import Rows
from tests.schedules.lowering import parts


class Broken(Exception):
    """The schedule does something that a runtime could not do, or that gives a wrong result."""


def run(rows: Rows, home: dict[tuple[int, int], int]) -> None:
    """Run every rank to its end; raises `Broken` where that is not possible.

    Sends wait for nobody; messages between two ranks arrive in order. `home` is where each pipeline stage runs a micro-batch.
    """
    spelled = any("SEND" in cell for row in rows for cell in row)
    machine = _Machine(rows, home, spelled)
    at = [0] * len(rows)
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while at[rank] < len(row) and machine.can(rank, row[at[rank]]):
                machine.do(rank, row[at[rank]])
                at[rank] += 1
                moved = True
    if at != [len(row) for row in rows]:
        raise Broken("stands still")
    machine.finish()


class _Machine:
    """What every rank holds."""

    def __init__(self, rows: Rows, home: dict[tuple[int, int], int], spelled: bool) -> None:
        self.home = home
        self.spelled = spelled
        self.last = max(s for s, _ in home)
        self.done: set[tuple[int, str, int]] = set()
        self.posted: dict[tuple[int, int], deque[tuple[int, str, int]]] = {}
        self.sent: dict[tuple[int, int], deque[tuple[int, str, int]]] = {}
        self.inputs: set[tuple[int, str, int]] = set()
        self.open: list[str] = []
        self.whole: set[tuple[int, int]] = set()
        kinds = {kind for row in rows for cell in row for _, kind, _ in parts(cell)}
        self.unshards = "UNSHARD" in kinds
        self.trains = bool(kinds & {"B", "I", "W"})
        self.waits = {kind.removeprefix("WAIT_") for kind in kinds if kind.startswith("WAIT_")}
        self.left = {(r, s): sum(1 for (t, _), h in home.items() if t == s and h == r) for (s, _), r in home.items()}
        self.reduces = "REDUCE_GRAD" in kinds

    def input(self, s: int, kind: str, i: int) -> tuple[int, str, int] | None:
        """What a step needs of a neighbour: its pipeline stage, way and micro-batch."""
        if kind == "F" and s > 0:
            return s - 1, "F", i
        if kind in "BI" and s < self.last:
            return s + 1, "B", i
        return None

    def can(self, rank: int, cell: str) -> bool:
        """Whether what the cell needs of other ranks has come; what it needs of its own rank must be there."""
        for s, kind, i in parts(cell):
            need = self.input(s, kind, i) if kind in "FBIW" else None
            if need is None:
                continue
            if self.home.get((need[0], need[2])) == rank:
                if need not in self.done:
                    raise Broken(f"{cell} before {need}")
            elif not self.spelled:
                if need not in self.done:
                    return False
            elif need not in self.inputs:
                self.deliver(rank)
                if need not in self.inputs:
                    if not any(need in posted for (_, to), posted in self.posted.items() if to == rank):
                        raise Broken(f"{cell} before its receive")
                    return False
        return True

    def deliver(self, rank: int) -> None:
        """Match receives with sends in order."""
        for (source, to), posted in self.posted.items():
            sent = self.sent.get((source, to), deque())
            while to == rank and posted and sent:
                takes, gives = posted.popleft(), sent.popleft()
                if takes != gives:
                    raise Broken(f"{takes} gets {gives}")
                self.inputs.add(takes)

    def do(self, rank: int, cell: str) -> None:
        """Run a cell."""
        if "OVERLAP" in cell and len({i for _, _, i in parts(cell)}) != 2 and len({s for s, _, _ in parts(cell)}) != 2:
            raise Broken("overlap of what depends on each other")
        for s, kind, i in parts(cell):
            if kind in ("F", "B", "I", "W"):
                self.compute(rank, s, kind, i)
            else:
                self.communicate(rank, s, kind, i)

    def compute(self, rank: int, s: int, kind: str, i: int) -> None:
        """Run a forward or a part of a backward."""
        if self.home.get((s, i)) != rank:
            raise Broken("not here")
        if self.unshards and (rank, s) not in self.whole:
            raise Broken("sharded")
        way = {"F": "F", "B": "B", "I": "B", "W": "W"}[kind]
        needs = {"F": (), "B": ("F",), "I": ("F",), "W": ("B",)}[kind]
        if (s, way, i) in self.done or any((s, need, i) not in self.done for need in needs):
            raise Broken("twice or too early")
        self.done.add((s, way, i))
        if kind == "B":
            self.done.add((s, "W", i))
        if kind in "BW":
            self.left[rank, s] -= 1

    def communicate(self, rank: int, s: int, kind: str, i: int) -> None:
        """Run an action that is no computation."""
        step, _, way = kind.rpartition("_")
        if kind.startswith("WAIT_"):
            name = f"{rank}/{s}{kind.removeprefix('WAIT_')}{i}"
            if name not in self.open:
                raise Broken("nothing to wait for")
            self.open.remove(name)
            return
        if kind in self.waits or ("SEND" in kind and any("SEND" in wait for wait in self.waits)):
            self.open.append(f"{rank}/{s}{kind}{i}")
        if kind == "UNSHARD":
            if (rank, s) in self.whole:
                raise Broken("unsharded twice")
            self.whole.add((rank, s))
        elif kind == "RESHARD":
            self.whole.remove((rank, s)) if (rank, s) in self.whole else self.fail("resharded twice")
        elif kind == "REDUCE_GRAD":
            if self.left.get((rank, s)) != 0:
                raise Broken("reduced early, twice or elsewhere")
            self.left[rank, s] = -1
        else:
            source = s if step == "SEND" else s - 1 if way == "F" else s + 1
            target = (s + 1 if way == "F" else s - 1) if step == "SEND" else s
            ends = self.home.get((source, i), -1), self.home.get((target, i), -1)
            if -1 in ends or ends[0] == ends[1] or ends[step != "SEND"] != rank:
                raise Broken("no such message")
            if step == "SEND" and (source, way, i) not in self.done:
                raise Broken("sent early")
            if step != "SEND" and (target, way, i) in self.done:
                raise Broken("received late")
            (self.sent if step == "SEND" else self.posted).setdefault(ends, deque()).append((source, way, i))

    def fail(self, why: str) -> None:
        """Stop."""
        raise Broken(why)

    def finish(self) -> None:
        """Whether all is over."""
        for rank in set(self.home.values()):
            self.deliver(rank)
        if any((s, way, i) not in self.done for s, i in self.home for way in ("FBW" if self.trains else "F")):
            raise Broken("something was not computed")
        if self.open or any(self.sent.values()) or any(self.posted.values()):
            raise Broken("something is open")
        if self.unshards and self.whole:
            raise Broken("something is whole")
        if self.reduces and any(left != -1 for left in self.left.values()):
            raise Broken("something was not reduced")
