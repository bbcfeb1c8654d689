"""Collectives and messages: what every member is said to have afterwards follows from what all members put in."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from tvlint.certificate.form import Relation
from tvlint.certificate.operators import World
from tvlint.certificate.sums import added, fold_of, folded, over_slots, scaled
from tvlint.certificate.tables import Rejected
from tvlint.ir.operators import Collective, Communicate

DECLARED_PIECE_ORDER = "declared-piece-order"

FROM_ROOT = (Collective.BROADCAST, Collective.SCATTER)
"""The collectives into which only the root puts something."""

TO_ROOT = (Collective.GATHER, Collective.REDUCE)
"""The collectives after which only the root has something; what the others have is undefined."""

SUMS = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE)
"""The collectives in which a gradient that a rank never makes counts as zero."""


def exchanged(
    world: World, own: Communicate, given: Sequence[Relation], root: int, replicas: int, declared: bool
) -> list[Relation | None]:
    """What each member holds, in ascending order, given what each puts in; `root` is the position of the root.

    Where only the root puts something in, all of `given` are that; where only the root gets something, the others have None.
    The members stand for as many others in each of `replicas`.
    """
    count, kind = len(given), own.kind
    if own.splits or own.receive_splits:
        raise Rejected(f"`{kind.value}` with unequal pieces is not known to the checker")
    if replicas > 1 and kind is not Collective.ALL_REDUCE:
        raise Rejected(f"`{kind.value}` between replicas is not known to the checker")
    if any(len(one.box) != len(given[0].box) for one in given):
        raise Rejected(f"`{kind.value}` of tensors of different numbers of dimensions")
    if kind is Collective.ALL_TO_ALL:
        dim, other = _dim(own.dim, given[0]), _dim(own.concat_dim, given[0])
        return [_joined(world, [piece(world, one, dim, i, count) for one in given], other, False) for i in range(count)]
    if kind in SUMS:
        value = _sum(world, own, given, replicas)
    elif kind in FROM_ROOT:
        value = given[root]
    elif kind in (Collective.ALL_GATHER, Collective.GATHER):
        value = _joined(world, given, _dim(own.dim, given[0]), declared)
    else:
        raise Rejected(f"`{kind.value}` is not known to the checker")
    if kind in (Collective.REDUCE_SCATTER, Collective.SCATTER):
        return [piece(world, value, _dim(own.dim, value), i, count) for i in range(count)]
    return [value if kind not in TO_ROOT or i == root else None for i in range(count)]


def _dim(dim: int | None, value: Relation) -> int:
    if dim is None or not -len(value.box) <= dim < len(value.box):
        raise Rejected(f"a collective acts on dimension {dim} of a tensor of {len(value.box)}")
    return dim % len(value.box)


def _sum(world: World, own: Communicate, given: Sequence[Relation], replicas: int) -> Relation:
    if replicas > 1 and own.reduce not in ("", "sum", "avg"):
        raise Rejected(f"`{own.reduce}` between replicas is not known to the checker")
    if own.reduce in ("max", "min") and not given[0].parts and all(one is given[0] for one in given):
        return given[0]
    if own.reduce == "max" and any(fold_of(one) is not None for one in given):
        return _greatest(world, given)
    if own.reduce not in ("", "sum", "avg"):
        raise Rejected(f"a reduction with `{own.reduce}` is not known to the checker")
    value = over_slots(world.tables, added(world.tables, given), replicas, "one_replica")
    return scaled(world.tables, value, Fraction(1, len(given) * replicas)) if own.reduce == "avg" else value


def _greatest(world: World, given: Sequence[Relation]) -> Relation:
    """The greatest of maxima over some indices of one dimension, or over all: over those that any has seen."""
    term, box = given[0].term, given[0].box
    if any((one.term, one.box, one.coefficient) != (term, box, 1) for one in given):
        raise Rejected("the greatest is taken of what are not maxima of one value")
    if any(not one.parts for one in given):
        return world.tables.relation(term, box)
    folds = [fold_of(one) for one in given]
    first = folds[0]
    if first is None or first.kind != "max" or any(fold is None or fold._replace(seen=first.seen) != first for fold in folds):
        raise Rejected("the greatest is taken of what are not maxima over one dimension")
    return folded(world.tables, term, box, first, [fold.seen for fold in folds if fold is not None])


def piece(world: World, value: Relation, dim: int, position: int, count: int) -> Relation:
    """Piece `position` of `count` equal ones along `dim`."""
    low, high = value.box[dim]
    step, rest = divmod(high - low, count)
    if rest or (world.slots > 1 and world.tables.terms[value.term].slot == dim):
        raise Rejected(f"{high - low} elements are cut into {count} pieces")
    bounds = (low + position * step, low + (position + 1) * step)
    return _with_box(world, value, (*value.box[:dim], bounds, *value.box[dim + 1 :]))


def _with_box(world: World, value: Relation, box: tuple[tuple[int, int], ...]) -> Relation:
    return world.tables.relation(value.term, box, value.coefficient, value.parts)


def _joined(world: World, given: Sequence[Relation], dim: int, declared: bool) -> Relation:
    """The pieces one after the other; in the order that the plan declares only where that is assumed."""
    first = given[0]
    if len(given) > 1 and world.slots > 1 and world.tables.terms[first.term].slot == dim:
        raise Rejected("the reference joins pieces of its batch")
    bounds = [one.box[dim] for one in given]
    alike = all(one._replace(box=()) == first._replace(box=()) for one in given)
    if not alike or any(one.box[:dim] + one.box[dim + 1 :] != first.box[:dim] + first.box[dim + 1 :] for one in given):
        raise Rejected("pieces are gathered that are not of one value, or differ in another dimension")
    ordered = sorted(bounds)
    if any(one[1] != other[0] for one, other in pairwise(ordered)) or (bounds != ordered and not declared):
        raise Rejected("pieces are gathered that do not lie one after the other in the order of the ranks")
    return _with_box(world, first, (*first.box[:dim], (ordered[0][0], ordered[-1][1]), *first.box[dim + 1 :]))
