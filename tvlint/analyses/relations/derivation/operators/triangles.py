"""Triangles of one number that a rank makes for its own rows, as rows of the triangle of all.

`tril(ones(4, 8), 4)` is rows 4 to 8 of `tril(ones(8, 8))`. In normal forms only, since a plan may also make the one that the
reference makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvlint.analyses.relations.derivation.state import Machine, Saved
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait


def some_rows(machine: Machine, saved: Saved) -> Saved:
    """Return a triangle that the reference does not make as some rows of one that has as many rows as columns."""
    terms, (made,) = machine.world.terms, saved.outputs
    if made is None or not terms.normal or not terms.foreign(made.term):
        return saved
    if not has_trait(str(terms.keys[made.term][0]), Trait.TRIANGLE):
        return saved
    if len(made.box) != 2 or made.box != tuple((0, size) for size in terms.shape[made.term]):
        return saved
    below, diagonal = terms.keys[made.term][2]
    if isinstance(diagonal, bool) or not isinstance(diagonal, int):
        return saved
    rows, columns = terms.shape[made.term]
    for first in (*_diagonals(terms, made.term), 0 if below else 1):
        start = diagonal - first
        if start >= 0 and start + rows <= columns and rows < columns:
            whole = _of_all_rows(terms, made.term, columns, first)
            value = machine.world.values.clean(whole, ((start, start + rows), (0, columns))) if whole is not None else None
            return saved if value is None else replace(saved, outputs=(value,))
    return saved


def _diagonals(terms: Terms, triangle: int) -> Iterator[int]:
    """Yield where the diagonals are of the reference's triangles on the same side that have as many columns."""
    for term in range(terms.sealed):
        head, square = terms.keys[term], (terms.shape[triangle][1],) * 2
        if not has_trait(str(head[0]), Trait.TRIANGLE) or terms.shape[term] != square:
            continue
        if head[2][0] is terms.keys[triangle][2][0] and isinstance(head[2][1], int):
            yield head[2][1]


def _of_all_rows(terms: Terms, triangle: int, size: int, diagonal: int) -> int | None:
    """Return the triangle of `size` rows and columns of the same number; None where it is not of one number."""
    (filled,) = terms.operands[triangle]
    op = str(terms.keys[filled][0])
    if not has_trait(op, Trait.FILLED) or has_trait(op, Trait.LIKE) or terms.operands[filled]:
        return None
    _, which, attributes, pattern, _ = terms.keys[filled]
    head = (op, which, (*attributes[:-1], (size, size)), pattern, (size, size))
    of = terms.term(head, (), (size, size), -1)
    triangular, which, (below, _), pattern, sizes = terms.keys[triangle]
    return terms.term((triangular, which, (below, diagonal), pattern, sizes), (of,), (size, size), -1)
