"""Some indices of a dimension of a term, and terms side by side in one, as sums of products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvlint.analyses.relations.terms.constant_factors import bare, times
from tvlint.analyses.relations.terms.expressions import ONE, Expression, TooLargeError, parts_of
from tvlint.analyses.relations.terms.joined_sums import Algebra
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait


@dataclass(frozen=True, slots=True)
class _Move:
    """Values of which an operator, or its gradient, takes ranges of dimensions, or puts them among zeros.

    `cut` has the indices of each value whose dimensions are cut, and `new` those that the result alone has.
    """

    algebra: Algebra
    values: Sequence[Expression]
    cut: Sequence[Sequence[int]]
    new: Sequence[int]
    sizes: Mapping[int, int]
    which: Any
    attributes: Sequence[Any]
    gradient: bool


def moved_ranges(
    terms: Terms,
    head: tuple[Any, ...],
    operands: Sequence[int],
    places: Sequence[Sequence[int]],
    result: Sequence[int],
    whole: Sequence[int],
) -> int | None:
    """Return slices, parts and joined tensors, and their gradients: some indices of dimensions, or values among zeros.

    A dimension that views put together is cut as one.
    """
    op, which, attributes, _, extra = head
    gradient, algebra = str(op).endswith(" gradient"), Algebra(terms)
    free = [[index for index in row if index not in whole] for row in (*places, result)]
    algebra.split(
        (term, [index if index in kept else -1 for index in row])
        for term, row, kept in zip(operands, places, free, strict=False)
    )
    new = [index for index in result if index in whole and not any(index in place for place in places)]
    if len(new) != len(extra):
        return None
    values = [_opaque(algebra, term, place, whole) for term, place in zip(operands, places, strict=True)]
    cut = [[index for index in place if index in whole] for place in places]
    move = _Move(algebra, values, cut, new, dict(zip(new, extra, strict=True)), which, attributes, gradient)
    name = str(op).removesuffix(" gradient")
    joins = has_trait(name, Trait.JOIN)
    if has_trait(name, Trait.PADDING):
        made = _surrounded(move, places[0], result)
        return _laid_out(algebra, made, result) if made else None
    lengths = attributes and len(new) == 1 and all(type(attribute) is int for attribute in attributes)
    if joins and not (new if gradient else any(cut)):
        made = _unstacked(move) if gradient else _stacked(move)
    elif lengths:
        made = _part(move) if joins is gradient else _joined(move)
    else:
        made = _sliced(move, places[0], result)
    return _laid_out(algebra, made, result) if made else None


def _part(move: _Move) -> Expression | None:
    """Return the part of a value at a place, where all parts have lengths: what is taken apart, or the gradient of a join."""
    place, lengths = move.which[0] if move.gradient else move.which, move.attributes
    if len(move.values) != 1 or not isinstance(place, int) or place >= len(lengths) or len(move.cut[0]) != 1:
        return None
    if move.sizes[move.new[0]] != lengths[place]:
        return None
    start = sum(lengths[:place])
    return move.algebra.sliced(move.values[0], move.cut[0][0], start, start + lengths[place], move.new[0])


def _joined(move: _Move) -> Expression | None:
    """Return values of some lengths one behind the other: a join, or the gradient of what is taken apart."""
    lengths, size = move.attributes, sum(move.attributes)
    given = move.which[1] if move.gradient else tuple(range(len(lengths)))
    if len(given) != len(move.values) or move.sizes[move.new[0]] != size or any(len(cut) != 1 for cut in move.cut):
        return None
    parts = (
        move.algebra.padded(value, index, sum(lengths[:place]), size, move.new[0])
        for value, (index,), place in zip(move.values, move.cut, given, strict=True)
    )
    return move.algebra.added(*parts)


def _sliced(move: _Move, before: Sequence[int], after: Sequence[int]) -> Expression | None:
    """Return a value of whose dimensions ranges are taken, each with its start and its stop; among zeros for a gradient."""
    if len(move.values) != 1 or len(before) != len(after) or len(move.attributes) != len(before):
        return None
    made = move.values[0]
    for entry, old, new in zip(move.attributes, before, after, strict=True):
        if entry is None and old == new:
            continue
        if not isinstance(entry, tuple) or len(entry) != 3 or entry[2] != 1 or not all(isinstance(end, int) for end in entry):
            return None
        start, stop, _ = entry
        if move.gradient:
            made = move.algebra.padded(made, old, start, move.sizes[new], new)
        else:
            made = move.algebra.sliced(made, old, start, stop, new)
    return made


def _surrounded(move: _Move, before: Sequence[int], after: Sequence[int]) -> Expression | None:
    """Return a value among so many zeros before and after it; that range of it for a gradient."""
    around, number = move.attributes
    if number != 0 or not len(around) == len(before) == len(after):
        return None
    ranges = [
        None if old == new else (low, move.sizes[new] + (low if move.gradient else -high), 1)
        for (low, high), old, new in zip(around, before, after, strict=True)
    ]
    return _sliced(replace(move, attributes=ranges, gradient=not move.gradient), before, after)


def _stacked(move: _Move) -> Expression | None:
    """Return values along a new dimension: each among zeros, at its place of it."""
    algebra, count = move.algebra, len(move.values)
    if len(move.new) != 1 or move.sizes[move.new[0]] != count:
        return None
    part = _fresh(algebra, move.new)
    algebra.sizes[part] = (1, False)
    return algebra.added(*(algebra.padded(value, part, place, count, move.new[0]) for place, value in enumerate(move.values)))


def _unstacked(move: _Move) -> Expression | None:
    """Return the gradient of a value that stands at a place of a new dimension: the given one there, without the dimension."""
    if len(move.values) != 1 or len(move.cut[0]) != 1 or not isinstance(move.which[0], int):
        return None
    part, place = _fresh(move.algebra, move.cut[0]), move.which[0]
    made = move.algebra.sliced(move.values[0], move.cut[0][0], place, place + 1, part)
    return tuple(
        (constant, tuple((term, tuple(-1 if i == part else i for i in at), power) for term, at, power in factors))
        for constant, factors in made
    )


def _fresh(algebra: Algebra, known: Sequence[int]) -> int:
    return max(*algebra.sizes, *known, -1) + 1


def some_of(terms: Terms, term: int, dim: int, start: int, stop: int) -> int | None:
    """Return some indices of a dimension of a term as a sum of products; None where no form of it is known."""
    places, algebra = list(range(len(terms.shape[term]))), Algebra(terms)
    try:
        (given,) = _with_dimensions(algebra, [(term, places, dim)])
        made = algebra.sliced(given, dim, start, stop, len(places))
        return _laid_out(algebra, made, [*places[:dim], len(places), *places[dim + 1 :]]) if made else None
    except TooLargeError:
        return None


def all_of(terms: Terms, term: int, dim: int, start: int, size: int) -> int | None:
    """Return a term of which another is the indices from `start` on of a dimension of that size; None where none is known."""
    found = Algebra(terms).all_of(term, dim, start, size)
    return None if found is None else times(terms, *found)


def is_equal_by_ranges(terms: Terms, one: int, other: int) -> bool:
    """Return whether two terms are equal on each of the ranges at which the first has values side by side, where these make up
    a dimension.
    """
    algebra, places = Algebra(terms), range(len(terms.shape[one]))
    try:
        algebra.split([(one, places)])
        found = algebra.ranges(algebra.of_term(one, places))
    except TooLargeError:
        return False
    if found is None:
        return False
    dim, ranges = found
    if dim >= len(terms.shape[one]) or sum(size for _, size in ranges) != terms.shape[one][dim]:
        return False
    for start, size in ranges:
        part, right = (some_of(terms, term, dim, start, start + size) for term in (one, other))
        if part is None or part != right:
            return False
    return True


def among_zeros(terms: Terms, term: int, dim: int, start: int, size: int) -> int | None:
    """Return a term among zeros, from `start` on in a dimension of that size; None where no form of it is known."""
    return side_by_side(terms, [(term, start)], dim, size)


def side_by_side(terms: Terms, parts: Sequence[tuple[int, int]], dim: int, size: int) -> int | None:
    """Return terms side by side in a dimension of that size, each from an index on; None where no form of that is known."""
    places, algebra = list(range(len(terms.shape[parts[0][0]]))), Algebra(terms)
    last = len(places) + len(parts)
    try:
        cut = [(term, [*places[:dim], part, *places[dim + 1 :]], part) for part, (term, _) in enumerate(parts, len(places))]
        given = zip(_with_dimensions(algebra, cut), cut, parts, strict=True)
        made = [algebra.padded(value, part, start, size, last) for value, (_, _, part), (_, start) in given]
        return _laid_out(algebra, algebra.added(*made), [*places[:dim], last, *places[dim + 1 :]])
    except TooLargeError:
        return None


def _with_dimensions(algebra: Algebra, given: Sequence[tuple[int, Sequence[int], int]]) -> list[Expression]:
    """Return terms, each with the indices of its dimensions, as expressions in which one index of each is not split."""
    algebra.split((term, [-1 if index == whole else index for index in places]) for term, places, whole in given)
    return [_opaque(algebra, term, places, [whole]) for term, places, whole in given]


def _laid_out(algebra: Algebra, made: Expression, places: Sequence[int]) -> int:
    term, constant = algebra.laid_out(made, places)
    return times(algebra.terms, term, constant)


def _opaque(algebra: Algebra, term: int, places: Sequence[int], whole: Sequence[int]) -> Expression:
    """Return a term as an expression; as one factor where it joins dimensions into one that is cut.

    An index that no factor has, since the term is the same all along it, is as long as the dimension.
    """
    inner, constant = bare(algebra.terms, term)
    for dim, index in enumerate(places):
        if index >= 0:
            algebra.sizes.setdefault(index, (algebra.terms.shape[inner][dim], dim == algebra.terms.slot[inner]))
    if all(len(sizes) == 1 for sizes, index in zip(parts_of(algebra.terms, inner), places, strict=True) if index in whole):
        return algebra.of_term(term, places)
    for dim, index in enumerate(places):
        if len(algebra.expanded(index)) > 1:
            raise TooLargeError
        algebra.sizes[index] = (algebra.terms.shape[inner][dim], dim == algebra.terms.slot[inner])
    return ((constant, ((inner, tuple(places), ONE),)),)
