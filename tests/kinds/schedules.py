"""Orders in which the stages of a pipeline run its chunks: `F` forward, `B` backward, `W` the gradients of weights."""

from __future__ import annotations

from typing import TypeAlias

Order: TypeAlias = "list[list[tuple[str, int, int]]]"
"""For each stage: what it runs, of which chunk of the model, for which micro-batch."""


def all_forwards_first(stages: int, chunks: int, micro: int) -> Order:
    """GPipe; with several chunks on a stage, the looped schedule."""
    rows: Order = []
    for stage in range(stages):
        own = range(stage, chunks, stages)
        forward = [("F", chunk, batch) for chunk in own for batch in range(micro)]
        rows.append(forward + [("B", chunk, batch) for chunk in reversed(own) for batch in range(micro)])
    return rows


def one_forward_one_backward(stages: int, chunks: int, micro: int) -> Order:
    """1F1B; with several chunks on a stage it is interleaved, and the micro-batches divide over the stages."""
    each, total = chunks // stages, micro * chunks // stages
    group = 1 if each == 1 else stages

    def run(kind: str, turn: int, stage: int) -> tuple[str, int, int]:
        chunk = turn // group % each
        chunk = chunk if kind == "F" else each - 1 - chunk
        return kind, chunk * stages + stage, turn // (group * each) * group + turn % group

    rows: Order = []
    for stage in range(stages):
        ahead = stages - 1 - stage if each == 1 else 2 * (stages - 1 - stage) + (each - 1) * stages
        ahead = min(ahead, total)
        row = [run("F", turn, stage) for turn in range(ahead)]
        for turn in range(total - ahead):
            row += [run("F", turn + ahead, stage), run("B", turn, stage)]
        rows.append(row + [run("B", turn, stage) for turn in range(total - ahead, total)])
    return rows


def zero_bubble(stages: int, chunks: int, micro: int) -> Order:
    """1F1B whose gradients of weights wait, the longer the later the stage."""
    rows: Order = []
    for stage, row in enumerate(one_forward_one_backward(stages, chunks, micro)):
        ran: list[tuple[str, int, int]] = []
        late: list[tuple[str, int, int]] = []
        for run in row:
            ran.append(run)
            if run[0] == "B":
                late.append(("W", *run[1:]))
                ran += [late.pop(0)] if len(late) > stage else []
        rows.append(ran + late)
    return rows
