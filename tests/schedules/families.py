"""Generators of the known families of pipeline schedules, written from their descriptions.

A schedule is a list of rows; a row is a list of cells as the CSV spells them. p is the number of ranks, v the chunks of a
rank, m the number of micro-batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

Rows = list[list[str]]


def gpipe(p: int, m: int) -> Rows:
    """All forwards, then all backwards."""
    return [[*(f"{rank}F{i}" for i in range(m)), *(f"{rank}B{i}" for i in range(m))] for rank in range(p)]


def one_f_one_b(p: int, m: int) -> Rows:
    """A warm-up of p - rank - 1 forwards, then one forward and one backward at a time."""
    return [_alternate(m, min(m, p - rank - 1), lambda i, rank=rank: f"{rank}F{i}", lambda i, rank=rank: f"{rank}B{i}")
            for rank in range(p)]  # fmt: skip


def _alternate(total: int, warm_up: int, forward: Callable[[int], str], backward: Callable[[int], str]) -> list[str]:
    row = [forward(i) for i in range(warm_up)]
    for i in range(warm_up, total):
        row += [forward(i), backward(i - warm_up)]
    return row + [backward(i) for i in range(total - warm_up, total)]


def looped_bfs(p: int, v: int, m: int) -> Rows:
    """All micro-batches through each chunk before the next."""
    return [
        [f"{c * p + rank}F{i}" for c in range(v) for i in range(m)]
        + [f"{c * p + rank}B{i}" for c in reversed(range(v)) for i in reversed(range(m))]
        for rank in range(p)
    ]


def interleaved(p: int, v: int, m: int, g: int) -> Rows:
    """Groups of g micro-batches through all chunks, one forward and one backward at a time."""
    rows = []
    for rank in range(p):
        forwards = [f"{c * p + rank}F{i}" for c, i in _depth_first(v, m, g, False)]
        backwards = [f"{c * p + rank}B{i}" for c, i in _depth_first(v, m, g, True)]
        warm_up = min(m * v, 2 * (p - rank - 1) + (v - 1) * g)
        rows.append(_alternate(m * v, warm_up, forwards.__getitem__, backwards.__getitem__))
    return rows


def _depth_first(v: int, m: int, g: int, backwards: bool) -> list[tuple[int, int]]:
    chunks = list(reversed(range(v))) if backwards else list(range(v))
    return [(c, i) for start in range(0, m, g) for c in chunks for i in range(start, min(start + g, m))]


def interleaved_overlapped(p: int, v: int, m: int, g: int) -> Rows:
    """Interleaved with one more forward in the warm-up, the forward and backward of the steady state overlapped."""
    rows = []
    for rank in range(p):
        forwards = [f"{c * p + rank}F{i}" for c, i in _depth_first(v, m, g, False)]
        backwards = [f"{c * p + rank}B{i}" for c, i in _depth_first(v, m, g, True)]
        warm_up = min(m * v, 2 * (p - rank - 1) + (v - 1) * g + 1)
        row = forwards[:warm_up]
        row += [f"({f};{b})OVERLAP_F_B" for f, b in zip(forwards[warm_up:], backwards, strict=False)]
        rows.append(row + backwards[m * v - warm_up :])
    return rows


def zb_h1(p: int, m: int) -> Rows:
    """Split backward: the weight gradients lag so far that every rank holds what the first one does."""
    return [_split(rank, m, min(m, p - rank), rank) for rank in range(p)]


def zb_h2(p: int, m: int) -> Rows:
    """As ZB-H1 with a warm-up that fills the bubble."""
    return [_split(rank, m, min(m, 2 * (p - rank) - 1), 2 * rank) for rank in range(p)]


def _split(stage: int, m: int, warm_up: int, lag: int) -> list[str]:
    row = [f"{stage}F{i}" for i in range(warm_up)]
    for i in range(m):
        row.append(f"{stage}I{i}")
        if i >= lag:
            row.append(f"{stage}W{i - lag}")
        if i + warm_up < m:
            row.append(f"{stage}F{i + warm_up}")
    return row + [f"{stage}W{i}" for i in range(max(0, m - lag), m)]


def interleaved_zero_bubble(p: int, v: int, m: int, g: int) -> Rows:
    """Interleaved with split backward and half the warm-up distance between ranks."""
    rows = []
    for rank in range(p):
        forwards = [f"{c * p + rank}F{i}" for c, i in _depth_first(v, m, g, False)]
        backwards = _depth_first(v, m, g, True)
        warm_up = min(m * v, p - rank - 1 + (v - 1) * g)
        row = forwards[:warm_up]
        weights = iter(backwards)
        for k, (c, i) in enumerate(backwards):
            if warm_up + k < m * v:
                row.append(forwards[warm_up + k])
            row.append(f"{c * p + rank}I{i}")
            if k >= rank:
                row.append("{}W{}".format(*_at(next(weights), p, rank)))
        rows.append(row + ["{}W{}".format(*_at(rest, p, rank)) for rest in weights])
    return rows


def _at(unit: tuple[int, int], p: int, rank: int) -> tuple[int, int]:
    return unit[0] * p + rank, unit[1]


class _Counted:
    """A row of two chunks whose micro-batches are counted by chunk and kind."""

    def __init__(self, stages: tuple[int, int], first: tuple[int, int] = (0, 0)) -> None:
        self.stages = stages
        self.first = first
        self.row: list[str] = []
        self.count: Counter[tuple[int, str]] = Counter()
        self.late: list[str] = []

    def next(self, chunk: int, kind: str) -> str:
        """The chunk's next micro-batch of a kind; I and B share their count."""
        number = self.count[chunk, kind.replace("B", "I")]
        self.count[chunk, kind.replace("B", "I")] += 1
        cell = f"{self.stages[chunk]}{kind}{number + self.first[chunk]}"
        if kind == "I":
            self.late.append(cell.replace("I", "W"))
        return cell

    def add(self, chunk: int, kind: str) -> None:
        """Run it alone."""
        self.row.append(self.next(chunk, kind))

    def weight(self) -> None:
        """Run the weight gradient that waits longest."""
        if self.late:
            self.row.append(self.late.pop(0))

    def overlap(self, forward: int, backward: int) -> None:
        """Run a forward and a backward at the same time."""
        self.row.append(f"({self.next(forward, 'F')};{self.next(backward, 'B')})OVERLAP_F_B")


def zbv(p: int, m: int) -> Rows:
    """Two chunks down the ranks and up again, split backward; m is at least 2p - 1."""
    rows = []
    for rank in range(p):
        line = _Counted((rank, 2 * p - 1 - rank))
        for _ in range(2 * (p - rank) - 1):
            line.add(0, "F")
        for _ in range(rank):
            line.add(1, "F")
            line.add(0, "F")
        for _ in range(p - rank):
            line.add(1, "F")
            line.add(1, "I")
            line.weight()
        while line.count[1, "F"] < m:
            if line.count[0, "F"] < m:
                line.add(0, "F")
            line.add(0, "I")
            line.weight()
            line.add(1, "F")
            line.add(1, "I")
            line.weight()
        for _ in range(rank):
            line.add(0, "I")
            line.add(1, "I")
        for _ in range(p - rank):
            line.add(0, "I")
            line.weight()
        while line.late:
            line.weight()
        rows.append(line.row)
    return rows


def dual_pipe_v(p: int, m: int) -> Rows:
    """DualPipe cut in half: two chunks in V shape, forward and backward overlapped; m is at least 2p."""
    return [_dual(_Counted((rank, 2 * p - 1 - rank)), p, rank, m) for rank in range(p)]


def dual_pipe(p: int, m: int) -> Rows:
    """Both ends feed micro-batches, half of them each; every pipeline stage has two ranks; m is even and at least 2p."""
    rows = []
    for rank in range(p):
        near = min(rank, p - 1 - rank)
        up = rank >= p // 2
        stages, first = (rank, p - 1 - rank), (0, m // 2)
        line = _Counted(stages[::-1], first[::-1]) if up else _Counted(stages, first)
        rows.append(_dual(line, p // 2, near, m // 2))
    return rows


def _dual(line: _Counted, p: int, rank: int, m: int) -> list[str]:
    for _ in range(2 * (p - rank - 1)):
        line.add(0, "F")
    for _ in range(rank + 1):
        line.add(0, "F")
        line.add(1, "F")
    for _ in range(p - rank - 1):
        line.add(1, "I")
        line.weight()
        line.add(1, "F")
    for i in range(m - 2 * p + rank + 1):
        if i == 0 and rank == p - 1:
            line.add(0, "F")
            line.add(1, "B")
        else:
            line.overlap(0, 1)
        line.overlap(1, 0)
    for _ in range(p - rank - 1):
        line.add(1, "B")
        line.overlap(1, 0)
    split = False
    for i in range(rank + 1):
        split = split or (i == (rank + 1) // 2 and rank % 2 == 1)
        line.add(1, "I" if split else "B")
        split = split or (i == (rank + 1) // 2 and rank % 2 == 0)
        line.add(0, "I" if split else "B")
    for _ in range(p - rank - 1):
        line.weight()
        line.add(0, "I" if split else "B")
    while line.late:
        line.weight()
    return line.row


def repetend(p: int, m: int) -> Rows:
    """Two neighbouring pipeline stages on each rank, one block of steps repeated with later micro-batches."""
    rows = []
    for rank in range(p):
        low, high, lag = 2 * rank, 2 * rank + 1, p - rank - 1
        row = []
        for k in range(m + lag):
            if k < m:
                row += [f"{low}F{k}", f"{high}F{k}"]
            if k >= lag:
                row += [f"{high}B{k - lag}", f"{low}B{k - lag}"]
        rows.append(row)
    return rows


def eager(p: int, m: int) -> Rows:
    """1F1B with twice the warm-up, so that messages travel while something else is computed."""
    return [_alternate(m, min(m, 2 * (p - rank - 1)), lambda i, rank=rank: f"{rank}F{i}", lambda i, rank=rank: f"{rank}B{i}")
            for rank in range(p)]  # fmt: skip


def in_sequences(p: int, m: int, parts: int) -> Rows:
    """Seq1F1B: the micro-batches are parts of sequences, of which the last goes backward first; m is a multiple of them."""
    order = [start + part for start in range(0, m, parts) for part in reversed(range(parts))]
    return [
        _alternate(
            m,
            min(m, p - rank - 1 + parts - 1),
            lambda i, rank=rank: f"{rank}F{i}",
            lambda i, rank=rank: f"{rank}B{order[i]}",
        )
        for rank in range(p)
    ]


def forward_only(p: int, v: int, m: int) -> Rows:
    """Inference: each micro-batch through all chunks, no backward."""
    return [[f"{c * p + rank}F{i}" for c in range(v) for i in range(m)] for rank in range(p)]


def down_and_up(stage: int, p: int) -> int:
    """The rank of a pipeline stage that goes down the ranks and up again."""
    turn, place = divmod(stage, p)
    return p - 1 - place if turn % 2 else place


def hanayo(p: int, waves: int, m: int) -> Rows:
    """As many times down the ranks and up again as there are waves."""
    return _as_soon_as_possible(p, 2 * waves * p, m, lambda stage, _: down_and_up(stage, p), p)


def chimera(p: int, m: int) -> Rows:
    """Half of the micro-batches down the ranks, half of them up."""
    return _as_soon_as_possible(p, p, m, lambda stage, way: p - 1 - stage if way else stage, p // 2 + 1, ways=2)


def bitpipe(p: int, m: int) -> Rows:
    """Two directions, each down the ranks and up again or the other way round."""

    def home(stage: int, way: int) -> int:
        return p - 1 - down_and_up(stage, p) if way else down_and_up(stage, p)

    return _as_soon_as_possible(p, 2 * p, m, home, p // 2 + 1, ways=2)


def _as_soon_as_possible(p: int, stages: int, m: int, home: Callable[[int, int], int], most: int, ways: int = 1) -> Rows:
    """Each rank runs a backward when one can run, else a forward; at most `most` micro-batches are under way in a direction."""
    rows: Rows = [[] for _ in range(p)]
    ended: dict[tuple[int, str, int], int] = {}
    free, under_way, time = [0] * p, [0] * ways, 0
    left = {(stage, kind, i) for stage in range(stages) for kind in "FB" for i in range(m)}

    def can(stage: int, kind: str, i: int) -> bool:
        before = [(stage - 1, "F", i)] if kind == "F" else [(stage, "F", i), (stage + 1, "B", i)]
        held = kind == "F" and stage == 0 and under_way[i * ways // m] >= most
        return not held and all(ended.get(own, time + 1) <= time for own in before if 0 <= own[0] < stages)

    while left:
        for rank in (rank for rank in range(p) if free[rank] <= time):
            ready = [(kind, i, -stage) for stage, kind, i in left if home(stage, i * ways // m) == rank and can(stage, kind, i)]
            for kind, i, below in sorted(ready)[:1]:
                left.discard((-below, kind, i))
                rows[rank].append(f"{-below}{kind}{i}")
                free[rank] = ended[-below, kind, i] = time + (1 if kind == "F" else 2)
                under_way[i * ways // m] += (kind == "F") - (kind == "B") if below == 0 else 0
        time += 1
    return rows


def examples(large: bool = False) -> Iterator[tuple[str, str, Rows]]:
    """Family, name and rows of schedules in many sizes."""
    for p in (2, 3, 4, 8) if not large else (2, 3, 4, 5, 8, 16):
        for m in sorted({1, 2, p, 2 * p, 3 * p + 1}):
            yield "GPipe", f"gpipe-{p}-{m}", gpipe(p, m)
            yield "1F1B", f"1f1b-{p}-{m}", one_f_one_b(p, m)
            yield "ZB-H1", f"zbh1-{p}-{m}", zb_h1(p, m)
            yield "ZB-H2", f"zbh2-{p}-{m}", zb_h2(p, m)
        for v in (2, 3):
            for m in (p, 2 * p, 3 * p):
                yield "looped BFS", f"bfs-{p}-{v}-{m}", looped_bfs(p, v, m)
                for g in sorted({p, m}):
                    yield "interleaved 1F1B", f"interleaved-{p}-{v}-{m}-{g}", interleaved(p, v, m, g)
                yield "interleaved zero-bubble", f"izb-{p}-{v}-{m}", interleaved_zero_bubble(p, v, m, p)
            overlapped = interleaved_overlapped(p, v, 3 * p, p)
            yield "interleaved 1F1B with overlapped backward", f"overlapped-{p}-{v}", overlapped
        for m in (2 * p, 3 * p, 4 * p + 2):
            yield "ZBV", f"zbv-{p}-{m}", zbv(p, m)
            yield "DualPipeV", f"dualpipev-{p}-{m}", dual_pipe_v(p, m)
            if p % 2 == 0:
                yield "DualPipe", f"dualpipe-{p}-{m}", dual_pipe(p, m)
        yield "repetend", f"repetend-{p}", repetend(p, 4 * p)
        yield "eager 1F1B", f"eager-{p}", eager(p, 4 * p)
        yield "Seq1F1B", f"sequences-{p}", in_sequences(p, 6 * p, 3)
        for v in (1, 2):
            yield "forward only", f"forward-{p}-{v}", forward_only(p, v, 2 * p)
        for waves in (1, 2):
            yield f"Hanayo with {waves} wave", f"hanayo-{p}-{waves}", hanayo(p, waves, 2 * p)
        if p % 2 == 0:
            yield "Chimera", f"chimera-{p}", chimera(p, 2 * p)
            yield "BitPipe", f"bitpipe-{p}", bitpipe(p, 2 * p)
