"""Views: the same elements in the same order under another shape, checked against what the certificate says they make."""

from __future__ import annotations

from math import prod

from tvlint.certificate.form import Relation
from tvlint.certificate.operators import World
from tvlint.certificate.sums import moved
from tvlint.certificate.tables import VIEW, VIEW_GRADIENT, Rejected


def view(world: World, own: Relation, after: tuple[int, ...], claim: Relation) -> Relation:
    """The relation of `own` viewed as local shape `after`, given the term and box that it is said to be of.

    Row-major order splits both shapes into runs of dimensions with equal products. In each run, both boxes must be the same
    interval of the run's elements, and the batch may only be its outermost dimension.
    """
    tables = world.tables
    old, new = tables.terms[own.term], tables.terms[claim.term]
    if new.head != VIEW or new.operands != (own.term,):
        raise Rejected("a view is said to be another value than its operand")
    if world.local_shape(claim) != after:
        raise Rejected(f"a view of shape {after} is said to have shape {world.local_shape(claim)}")
    left, right = _Dims(old.shape, own.box, old.slot), _Dims(new.shape, claim.box, new.slot)
    while left.more() or right.more():
        one, other = left.run(right)
        if one != other:
            raise Rejected("a view takes a split dimension apart")
    tables.term(VIEW, new.operands, new.shape, new.slot)
    return moved(tables, own, claim.term, 0, claim.box)


def view_gradient(world: World, operand: Relation, result: Relation, gradient: Relation) -> Relation:
    """The gradient of the operand of a view."""
    tables = world.tables
    if gradient.box != result.box or tables.terms[gradient.term][2:] != tables.terms[result.term][2:]:
        raise Rejected("a view gets the gradient of another slice than it gave")
    term = tables.term(VIEW_GRADIENT, (gradient.term,), *tables.terms[operand.term][2:])
    return moved(tables, gradient, term, 0, operand.box)


class _Dims:
    """The dimensions of one side from the outermost on, those that have one element and are not the batch left out."""

    def __init__(self, shape: tuple[int, ...], box: tuple[tuple[int, int], ...], slot: int) -> None:
        self.rest = [(size, bounds, i == slot) for i, (size, bounds) in enumerate(zip(shape, box, strict=True))]
        self.rest = [own for own in self.rest if own[0] != 1 or own[2]]
        self.taken: list[tuple[int, tuple[int, int], bool]] = []

    def more(self) -> bool:
        return bool(self.rest)

    def size(self) -> int:
        return prod(size for size, _, _ in self.taken)

    def take(self) -> None:
        if not self.rest:
            raise Rejected("a view has another number of elements than its operand")
        self.taken.append(self.rest.pop(0))

    def run(self, other: _Dims) -> tuple[object, object]:
        """The interval that the next run holds, here and there."""
        for side in (self, other):
            side.taken = []
            side.take()
        while self.size() != other.size():
            (self if self.size() < other.size() else other).take()
        return self.interval(), other.interval()

    def interval(self) -> tuple[int, int, bool]:
        """The elements that the run holds, counted in row-major order, and whether the batch is its outermost dimension."""
        (_, (start, end), slotted), *inner = self.taken
        for size, (low, high), batch in inner:
            if batch or ((low, high) != (0, size) and (slotted or end - start > 1)):
                raise Rejected("a view takes a split dimension apart")
            start, end = start * size + low, (end - 1) * size + high
        return start, end, slotted
