"""Batches of which the ranks are given unequal numbers of samples: each has the whole batch, and cuts its samples out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tvlint.readers.capture.lifting.program import Array, Exchange, Node, Program, reads


def with_whole_batches(programs: Sequence[Program], wholes: Sequence[Array]) -> list[Program]:
    """Return the programs of all ranks with parts of a whole input where the ranks are given unequal numbers of its rows.

    They stay as they are where the rows do not lie in the order of the ranks, or are not all of the input.
    """
    given = [dict(_rows_given(program, wholes)) for program in programs]
    cuts = [dict[str, _Cut]() for _ in programs]
    for at, whole in enumerate(wholes):
        rows = [[(name, each) for name, each in places.items() if each.whole == at] for places in given]
        splits = tuple(each.stop - each.start for of_rank in rows for _, each in of_rank)
        tiled = [each.start for of_rank in rows for _, each in of_rank] == [sum(splits[:rank]) for rank in range(len(rows))]
        if len(set(splits)) > 1 and all(len(of_rank) == 1 for of_rank in rows) and tiled and sum(splits) == len(whole):
            for rank, ((name, _),) in enumerate(rows):
                cuts[rank][name] = _Cut(whole, splits)
    return [_cut_out(program, places, tuple(range(len(programs)))) for program, places in zip(programs, cuts, strict=True)]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one of the whole inputs."""

    whole: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Cut:
    """A whole input, and how many of its rows each rank is given."""

    whole: Array
    splits: tuple[int, ...]


def _rows_given(program: Program, wholes: Sequence[Array]) -> Iterator[tuple[str, _Rows]]:
    """Yield the values that are given and are rows of one place of a whole input."""
    for name, value in program.given.items():
        part = value.numbers
        if value.named is None and part is not None and part.ndim and part.size:
            found = ((at, start) for at, whole in enumerate(wholes) for start in _starts(part, whole))
            starts = list(islice(found, 2))
            if len(starts) == 1:
                yield name, _Rows(*starts[0], starts[0][1] + len(part))


def _starts(part: Array, whole: Array) -> Iterator[int]:
    """Yield the rows of the whole from which on it is the part."""
    if part.dtype == whole.dtype and part.shape[1:] == whole.shape[1:]:
        numbers, wanted, row = whole.tobytes(), part.tobytes(), part[0].nbytes
        at = numbers.find(wanted)
        while at >= 0:
            if at % row == 0:
                yield at // row
            at = numbers.find(wanted, at + 1)


def _cut_out(program: Program, cuts: Mapping[str, _Cut], group: tuple[int, ...]) -> Program:
    """Return a program that is given whole inputs, and cuts its rows out before it reads them."""
    if not cuts:
        return program
    made = replace(program, given=dict(program.given), types=dict(program.types))
    nodes: list[Node] = []
    for node in program.nodes:
        for name in (name for name in reads(node) if name in cuts and name in made.given):
            value, whole = made.given.pop(name), made.fresh(program.types[name].of_shape(cuts[name].whole.shape))
            made.given[whole] = replace(value, numbers=cuts[name].whole)
            nodes.append(Exchange("chunk", (whole,), (name,), group, node.mark, dim=0, splits=cuts[name].splits))
        nodes.append(node)
    return replace(made, nodes=nodes)
