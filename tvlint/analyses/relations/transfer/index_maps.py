"""Index maps: which indices of each dimension of a term a local tensor holds, as pieces in the order in which they stand.

One piece for each dimension is a box. A tensor that holds several pieces of a dimension (query, key and value of its heads, or
the first and the last part of a sequence) is all of a term of its own, which `Terms` knows as the pieces of the whole one: so
whatever asks for a box of a term is right about it, and what follows index maps looks through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from typing import TypeAlias

from tvlint.analyses.relations.terms.terms import PIECES, Terms
from tvlint.ir.plan import Box

Pieces: TypeAlias = tuple[tuple[int, int], ...]
"""Half-open ranges of the indices of one dimension, in the order in which a tensor holds them."""

MOST_PIECES = 256


def joined(pieces: Iterable[tuple[int, int]]) -> Pieces:
    """Return the pieces, with those as one that continue each other."""
    found: list[tuple[int, int]] = []
    for low, high in pieces:
        if found and found[-1][1] == low:
            found[-1] = (found[-1][0], high)
        elif not found or low < high:
            found.append((low, high))
    return tuple(found)


def length(pieces: Pieces) -> int:
    """Return how many indices the pieces have."""
    return sum(high - low for low, high in pieces)


def cut(pieces: Pieces, start: int, stop: int) -> Pieces:
    """Return what stands at the places `start:stop` of a tensor that holds the pieces."""
    found, place = list[tuple[int, int]](), 0
    for low, high in pieces:
        first, last = max(start - place, 0), min(stop - place, high - low)
        if first < last:
            found.append((low + first, low + last))
        place += high - low
    return joined(found) or ((0, 0),)


def is_all_of(pieces: Pieces, size: int) -> bool:
    """Return whether the pieces have every index of a dimension once."""
    return joined(sorted(pieces)) == ((0, size),) and length(pieces) == size


def cells(pieces: Sequence[Pieces]) -> list[Box]:
    """Return the boxes that pieces of each dimension make up."""
    return [tuple(cell) for cell in product(*pieces)]


def pieces_of(terms: Terms, term: int, box: Box) -> tuple[Pieces, ...]:
    """Return the pieces of each dimension of the whole term (`Terms.whole`) that a box of the term is."""
    several = dict(terms.keys[term][1]) if terms.keys[term][0] == PIECES else {}
    return tuple(cut(several[dim], low, high) if dim in several else ((low, high),) for dim, (low, high) in enumerate(box))


def in_pieces(terms: Terms, whole: int, pieces: Sequence[Pieces]) -> tuple[int, Box]:
    """Return the pieces of a whole term as a box of a term: of the whole one, where each dimension has one piece."""
    several = tuple((dim, piece) for dim, piece in enumerate(pieces) if len(piece) > 1)
    box = tuple(piece[0] if len(piece) == 1 else (0, length(piece)) for piece in pieces)
    if not several:
        return whole, box
    slot, shape = terms.slot[whole], list(terms.shape[whole])
    for dim, part in several:
        if dim == slot:
            raise AssertionError("pieces of a batch that replicas or micro-batches cut")
        shape[dim] = length(part)
    return terms.term((PIECES, several), (whole,), tuple(shape), slot), box


def in_place(box: Box, pieces: Sequence[Pieces]) -> Box:
    """Return the box with as many indices from zero on in each dimension that has several pieces."""
    return tuple(bounds if len(held) == 1 else (0, length(held)) for bounds, held in zip(box, pieces, strict=True))


def joined_dimensions(dims: Sequence[tuple[Pieces, int]]) -> Pieces | None:
    """Return the pieces of dimensions in a row, each with its size, as one dimension; None where these are too many."""
    (found, _), *rest = dims
    for pieces, size in rest:
        if pieces == ((0, size),):
            found = tuple((low * size, high * size) for low, high in found)
            continue
        if length(found) * len(pieces) > MOST_PIECES:
            return None
        places = (place for low, high in found for place in range(low, high))
        found = joined((place * size + low, place * size + high) for place in places for low, high in pieces)
    return found


def split_dimension(pieces: Pieces, size: int, after: Sequence[int]) -> Iterable[tuple[int, tuple[tuple[Pieces, int], ...]]]:
    """Yield what pieces of a dimension of that size may be, viewed as local dimensions `after`: which of these is the outermost
    part of the dimension, and the pieces and the size of each.

    The outermost part, before which all are 1 long, has the pieces, and those within it are whole. Or pieces that are
    equal and stand at equal distances are so many rows of as many columns.
    """
    for lead in range(len(after)):
        if any(size != 1 for size in after[:lead]):
            break
        below = prod(after[lead + 1 :])
        if any(low % below or high % below for low, high in pieces) or size % below:
            continue
        ones = ((((0, 1),), 1),) * lead
        inner = tuple((((0, size),), size) for size in after[lead + 1 :])
        yield lead, (*ones, (tuple((low // below, high // below) for low, high in pieces), size // below), *inner)
    for ends in range(1, len(after)):
        rows = _rows(pieces, size, prod(after[:ends]))
        if rows is not None:
            (first, last, count), columns, step = rows
            for lead, outer in split_dimension(((first, last),), count, after[:ends]):
                yield from ((lead, (*outer, *inner)) for _, inner in split_dimension(columns, step, after[ends:]))


def _rows(pieces: Pieces, size: int, count: int) -> tuple[tuple[int, int, int], Pieces, int] | None:
    """Return pieces as so many rows of equal columns at equal distances: the range of rows and the number of all, the columns
    of each and the number of all; None where they are not. Columns that are not all of a row leave a gap in each.
    """
    if not 2 <= count <= len(pieces) or length(pieces) % count:
        return None
    each = length(pieces) // count
    rows = [cut(pieces, place * each, (place + 1) * each) for place in range(count)]
    step = rows[1][0][0] - rows[0][0][0]
    if step <= 0 or size % step:
        return None
    first = rows[0][0][0] // step
    columns = tuple((low - first * step, high - first * step) for low, high in rows[0])
    if any(low < 0 or high > step for low, high in columns):
        return None
    if any(row != tuple((low + place * step, high + place * step) for low, high in rows[0]) for place, row in enumerate(rows)):
        return None
    return (first, first + count, size // step), columns, step
