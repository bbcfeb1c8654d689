"""Cut what micro-batches compute at the same places.

A schedule that runs two stages of a rank one behind the other for one micro-batch, and apart for the others, has run the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from tvlint.readers.capture.emit import Run


def with_equal_runs(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return the runs, each cut where that of another micro-batch ends, if all run as many operators in the phase."""
    lengths: dict[str, dict[int, list[int]]] = {}
    for run in runs:
        if not run.message and run.micro_batch >= 0:
            lengths.setdefault(run.phase, {}).setdefault(run.micro_batch, []).append(len(run.operators))
    cuts: dict[str, list[int]] = {}
    for phase, by in lengths.items():
        if len({sum(sizes) for sizes in by.values()}) == 1:
            cuts[phase] = sorted({place for sizes in by.values() for place in accumulate(sizes)})
    places: dict[tuple[str, int], int] = {}
    return tuple(part for run in runs for part in _cut(run, cuts.get(run.phase, ()), places))


def _cut(run: Run, cuts: Sequence[int], places: dict[tuple[str, int], int]) -> Iterator[Run]:
    """Yield the parts of a run; `places` says how many operators its micro-batch has run in the phase, and is kept."""
    if run.message or run.micro_batch < 0:
        yield run
        return
    start = places.get((run.phase, run.micro_batch), 0)
    end = places[run.phase, run.micro_batch] = start + len(run.operators)
    borders = [start, *(cut for cut in cuts if start < cut < end), end]
    for low, high in pairwise(borders):
        yield Run(run.phase, run.micro_batch, "", run.operators[low - start : high - start])
