"""Batches of which the ranks are given unequal numbers of samples: each has the whole batch, and cuts its samples out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tvlint.readers.capture.lifting.program import Array, Exchange, Node, Program, reads


def with_whole_batches(programs: Sequence[Program], wholes: Sequence[Array]) -> list[Program]:
    """Return the programs of all ranks with parts of a whole input where the ranks are given unequal numbers of its rows.

    They stay as they are where the rows do not lie in the order of the ranks, or are not all of the input.
    """
    given = [_unnamed(program) for program in programs]
    cuts = [dict[str, _Cut]() for _ in programs]
    for whole in wholes:
        rows = _in_order(given, whole)
        splits = tuple(len(part) for _, part in rows)
        if len(rows) == len(programs) and len(set(splits)) > 1 and sum(splits) == len(whole):
            for places, (name, _) in zip(cuts, rows, strict=True):
                places[name] = _Cut(whole, splits)
    return [_cut_out(program, places, tuple(range(len(programs)))) for program, places in zip(programs, cuts, strict=True)]


@dataclass(frozen=True, slots=True)
class _Cut:
    """A whole input, and how many of its rows each rank is given."""

    whole: Array
    splits: tuple[int, ...]


def _unnamed(program: Program) -> list[tuple[str, Array]]:
    """Return the arrays that a program is given under no name."""
    unnamed = ((name, value.numbers) for name, value in program.given.items() if value.named is None)
    return [(name, numbers) for name, numbers in unnamed if numbers is not None and numbers.ndim and numbers.size]


def _in_order(given: Sequence[Sequence[tuple[str, Array]]], whole: Array) -> list[tuple[str, Array]]:
    """Return the rows of a whole input that each rank is given, behind those of the ranks before it.

    Fewer rows than ranks say that one of them is given none, or several.
    """
    rows: list[tuple[str, Array]] = []
    start = 0
    for parts in given:
        found = [(name, part) for name, part in parts if _is_at(part, whole, start)]
        if len(found) != 1:
            break
        rows += found
        start += len(found[0][1])
    return rows


def _is_at(part: Array, whole: Array, start: int) -> bool:
    """Return whether a part is the rows of the whole from `start` on."""
    alike = part.dtype == whole.dtype and part.shape[1:] == whole.shape[1:]
    return alike and part.tobytes() == whole[start : start + len(part)].tobytes()


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
