"""Transfer relations through collectives and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise

from tvlint.analyses.relations.terms.ranges import side_by_side, some_of
from tvlint.analyses.relations.transfer.apply import fold_text
from tvlint.analyses.relations.transfer.context import Mismatch, World, of_one_plan
from tvlint.analyses.relations.transfer.index_maps import MOST_PIECES, Pieces, joined
from tvlint.analyses.relations.transfer.pending_ranges import united
from tvlint.analyses.relations.transfer.relation import AmbiguousSumError, Leaf, Value
from tvlint.analyses.relations.transfer.reshape import stacked, unstacked
from tvlint.ir.operators import GATHERS, Collective, Communicate
from tvlint.ir.reductions import ADDING, EXTREMES
from tvlint.ops.spec import Shape
from tvlint.plurals import counted

_FROM_ROOT = (Collective.BROADCAST, Collective.SCATTER)


def exchange(
    world: World,
    operator: Communicate,
    members: tuple[int, ...],
    given: Mapping[int, Value],
    of: int,
    claimed: Mapping[int, tuple[tuple[int, int], ...]] | None = None,
) -> dict[int, Value]:
    """Return what each of `members` (ascending) holds after the collective, given what each puts in.

    A member's position is its position in the sorted group. `of` is the forward value when gradients are exchanged (-1
    otherwise). `claimed` are the declared boxes of the results, used only under the assumption `declared-piece-order`.
    Raises Mismatch where the result is not a box of one value.
    """
    results = _exchange(world, operator, members, given, of, claimed is not None)
    if operator.kind not in _FROM_ROOT:
        _check_sizes(world, operator, [given[rank] for rank in members if rank in given])
    return results


def _check_sizes(world: World, operator: Communicate, pieces: Sequence[Value]) -> None:
    """Raise Mismatch where members give tensors of several shapes, unless a gather states the size that each one has."""
    if not has_sizes_stated(operator, [world.local_shape(piece) for piece in pieces]):
        text = "states other sizes than its members give" if operator.splits else "exchanges unequal pieces without `splits`"
        raise Mismatch("unequal-splits", text, refutes=False)


def has_sizes_stated(operator: Communicate, shapes: Sequence[Shape]) -> bool:
    """Return whether the members of a gather give the sizes that it states, else whether all give tensors of one shape."""
    if operator.kind not in GATHERS or not operator.splits or operator.dim is None:
        return len(set(shapes)) <= 1
    others = {(*shape[: operator.dim], *shape[operator.dim % len(shape) + 1 :]) for shape in shapes}
    return len(others) <= 1 and tuple(shape[operator.dim] for shape in shapes) == operator.splits


def _exchange(
    world: World, operator: Communicate, members: tuple[int, ...], given: Mapping[int, Value], of: int, reorder: bool
) -> dict[int, Value]:
    kind = operator.kind
    pieces = [given[rank] for rank in members if rank in given]
    if kind is Collective.ALL_REDUCE:
        total = _sum(world, operator, pieces, of)
        return dict.fromkeys(members, total)
    if kind is Collective.REDUCE_SCATTER:
        total = _sum(world, operator, pieces, of)
        dim = _dim(operator, total)
        return {rank: chunk(world, total, dim, i, len(members)) for i, rank in enumerate(members)}
    if kind is Collective.ALL_GATHER:
        joined = _concatenate(world, pieces, _dim(operator, pieces[0]), members, reorder)
        return dict.fromkeys(members, joined)
    if kind is Collective.ALL_TO_ALL:
        return _all_to_all(world, operator, pieces, members)
    if kind in (Collective.BROADCAST, Collective.SCATTER, Collective.REDUCE, Collective.GATHER):
        return _rooted(world, operator, members, given, of, reorder)
    raise Mismatch("unsupported-collective", f"`{kind.value}` is not supported by the proof", refutes=False)


def _rooted(
    world: World, operator: Communicate, members: tuple[int, ...], given: Mapping[int, Value], of: int, reorder: bool
) -> dict[int, Value]:
    """Return what a collective with a root gives: to all, from the root; or to the root alone."""
    root = operator.root
    if root is None or root not in members:
        raise Mismatch("wrong-root", f"names the root {root}, which is not in the group {list(members)}", refutes=True)
    pieces = [given[rank] for rank in members if rank in given]
    if operator.kind is Collective.REDUCE:
        return {root: _sum(world, operator, pieces, of)}
    if operator.kind is Collective.GATHER:
        return {root: _concatenate(world, pieces, _dim(operator, pieces[0]), members, reorder)}
    if operator.kind is Collective.BROADCAST:
        return dict.fromkeys(members, given[root])
    dim = _dim(operator, given[root])
    return {rank: chunk(world, given[root], dim, i, len(members)) for i, rank in enumerate(members)}


def _dim(operator: Communicate, value: Value) -> int:
    dim = operator.dim
    if dim is None or not -len(value.box) <= dim < len(value.box):
        raise Mismatch("wrong-dimension", f"acts on dimension {dim} of a tensor of {len(value.box)}", refutes=True)
    if operator.receive_splits or (operator.splits and operator.kind not in GATHERS):
        raise Mismatch("unequal-splits", "splits unequally", refutes=False)
    return dim % len(value.box)


def _sum(world: World, operator: Communicate, pieces: Sequence[Value], of: int) -> Value:
    if operator.reduce in EXTREMES and all(piece is pieces[0] and not piece.leaves for piece in pieces):
        return pieces[0]
    part = next((piece.fold for piece in pieces if piece.fold is not None), None)
    if part is not None and (operator.reduce not in EXTREMES or part.kind != operator.reduce):
        how = {"": "adds", "sum": "adds", "avg": "averages"}.get(operator.reduce, f"takes the `{operator.reduce}` of")
        wrong = operator.reduce in ADDING | EXTREMES and part.kind != "gradient"
        raise Mismatch("wrong-reduce-op", f"{how} {fold_text(part)}", refutes=wrong)
    if part is not None:
        return _extreme(world, pieces)
    if operator.reduce not in ADDING:
        wrong = operator.reduce in EXTREMES and any(piece.leaves for piece in pieces)
        what = " of partial sums, which have to be added" if wrong else ""
        raise Mismatch("wrong-reduce-op", f"takes the `{operator.reduce}`{what}", refutes=wrong)
    if any(world.values.pieces_of(piece) != world.values.pieces_of(pieces[0]) for piece in pieces):
        raise Mismatch("mismatched-shards", "sums different slices of a value", refutes=True)
    share = Fraction(1, len(pieces)) if operator.reduce == "avg" else Fraction(1)
    differ = of < 0 and any(piece.term != pieces[0].term for piece in pieces)
    try:
        apart = world.values.sum_of_operands(pieces, share) if differ else None
        total = None if apart is None else apart.anew(apart.operands)
        if total is None and differ and not world.terms.arithmetic:
            raise Mismatch("sum-of-different-values", "sums values that are not parts of the same value", refutes=False)
        total = whole_sum(world, of, pieces, share) if total is None else total
    except AmbiguousSumError:
        text = "adds contributions that are parts of the same value in different ways"
        raise Mismatch("ambiguous-sum", text, refutes=False) from None
    if total is None:
        raise Mismatch("mismatched-shards", "sums different slices of a value", refutes=True)
    return total


def whole_sum(world: World, of: int, pieces: Sequence[Value], share: Fraction) -> Value | None:
    """Return a share of the sum; where its addends count differently, as what the reference makes of such, if it does."""
    total = world.values.sum_over(of, pieces)
    total = None if total is None else world.values.scaled(total, share)
    if total is None or not total.leaves or any(leaf.pending for leaf in total.leaves):
        return total
    apart = world.values.sum_of_operands(pieces, share)
    if apart is None:
        return total
    found = apart.anew(apart.operands)
    world.values.joined[total] = apart
    return total if world.terms.foreign(found.term) else found


def _extreme(world: World, pieces: Sequence[Value]) -> Value:
    """Return the maximum of maxima, or the minimum of minima, over parts of one dimension; parts may overlap."""
    if any(world.values.pieces_of(piece) != world.values.pieces_of(pieces[0]) for piece in pieces):
        raise Mismatch("mismatched-shards", "takes the greatest or least of different slices of a value", refutes=True)
    if any(piece.term != pieces[0].term for piece in pieces):
        raise Mismatch("max-of-different-values", "takes the greatest or least of parts of several values", refutes=False)
    if any(piece.leaves or piece.coefficient != 1 for piece in pieces):
        raise Mismatch("wrong-reduce-op", "takes the greatest or least of parts and of partial sums", refutes=False)
    folds = [piece.fold for piece in pieces if piece.fold is not None]
    if len(folds) < len(pieces):
        return next(piece for piece in pieces if piece.fold is None)
    if any((fold.kind, fold.number, fold.size) != (folds[0].kind, folds[0].number, folds[0].size) for fold in folds):
        raise Mismatch("max-of-different-values", "takes the greatest or least of parts of different dimensions", refutes=False)
    covered = united(*(fold.covered for fold in folds))
    return world.values.folded(pieces[0].term, pieces[0].box, folds[0]._replace(covered=covered))


def chunk(world: World, value: Value, dim: int, position: int, count: int, splits: Sequence[int] = ()) -> Value:
    """Piece `position` of `count` equal ones along `dim`, or of ones of the sizes that `splits` says."""
    low, high = value.box[dim]
    step, rest = divmod(high - low, count)
    sizes = splits or (step,) * count
    if (rest and not splits) or (world.terms.slot[value.term] == dim and world.slots > 1):
        raise Mismatch("uneven-chunk", f"cuts {counted(high - low, 'element')} into {counted(count, 'piece')}", refutes=False)
    if splits and (len(splits) != count or min(splits) < 1 or sum(splits) != high - low):
        text = f"cuts {counted(high - low, 'element')} into {counted(count, 'piece')} of sizes {list(splits)}"
        raise Mismatch("unequal-splits", text, refutes=False)
    start = low + sum(sizes[:position])
    cut = world.values.with_box(value, (*value.box[:dim], (start, start + sizes[position]), *value.box[dim + 1 :]))
    return cut if splits else unstacked(world, value, dim, position, count) or cut


def _concatenate(world: World, pieces: Sequence[Value], dim: int, ranks: Sequence[int], reorder: bool) -> Value:
    first, terms = pieces[0], world.terms
    if any(terms.whole(piece.term) != terms.whole(first.term) for piece in pieces):
        beside = _side_by_side(world, pieces, dim)
        if beside is not None:
            return beside
        raise Mismatch("gathers-different-values", "gathers pieces of different values", refutes=False)
    if any(piece.fold != first.fold for piece in pieces):
        raise Mismatch("gathers-parts", "gathers results over different parts of a dimension", refutes=False)
    if any((piece.leaves, piece.coefficient) != (first.leaves, first.coefficient) for piece in pieces):
        raise Mismatch("gather-of-partial", "gathers partial sums, which have to be added", refutes=True)
    ways = [world.values.pieces_of(piece) for piece in pieces]
    outside = (*ways[0][:dim], *ways[0][dim + 1 :])
    if any((*way[:dim], *way[dim + 1 :]) != outside for way in ways):
        found = stacked(world, pieces, dim)
        if found is not None:
            return found
        unlike = [at for at, held in enumerate(zip(*ways, strict=True)) if at != dim and any(each != held[0] for each in held)]
        along = " and ".join(map(str, unlike))
        raise Mismatch("wrong-gather-dim", f"gathers along dimension {dim} pieces that differ along {along}", refutes=True)
    if terms.slot[terms.whole(first.term)] != dim and (terms.normal or _lie_apart(world, [way[dim] for way in ways])):
        together = joined(bounds for way in ways for bounds in way[dim])
        if world.alone and len(ways[0][dim]) > 1 and all(way[dim] == ways[0][dim] for way in ways):
            held = ", ".join(f"{low}:{high}" for low, high in ways[0][dim])
            raise Mismatch("gathers-wrong-pieces", f"gathers the same indices {held} from every rank", refutes=True)
        if len(together) <= MOST_PIECES:
            return world.values.with_pieces(first, (*ways[0][:dim], together, *ways[0][dim + 1 :]))
    bounds = [piece.box[dim] for piece in pieces]
    ordered = sorted(bounds)
    if any(a[1] != b[0] for a, b in pairwise(ordered)):
        raise Mismatch("gathers-wrong-pieces", _wrong_pieces(bounds, ordered), refutes=True)
    if bounds != ordered and not reorder:
        held = ", ".join(f"{low}:{high} on rank {rank}" for (low, high), rank in zip(bounds, ranks, strict=True))
        raise Mismatch(
            "pieces-not-in-rank-order", f"gathers pieces in rank order that do not lie in that order ({held})", refutes=True
        )
    box = (*first.box[:dim], (ordered[0][0], ordered[-1][1]), *first.box[dim + 1 :])
    return world.values.with_box(first, box)


def _lie_apart(world: World, pieces: Sequence[Pieces]) -> bool:
    """Return whether gathered ranges lie apart in order, which is right where ranks are given ranges that lie apart."""
    if any(len(each) > 1 for each in pieces):
        return True
    return world.in_blocks and all(before < low for ((_, before),), ((low, _),) in pairwise(pieces))


def _wrong_pieces(bounds: Sequence[tuple[int, int]], ordered: Sequence[tuple[int, int]]) -> str:
    """Return what is wrong with the indices that are gathered, in words."""
    if ordered[0] == ordered[-1]:
        low, high = ordered[0]
        return f"gathers the same indices {low}:{high} from every rank"
    text = ", ".join(f"{low}:{high}" for low, high in bounds)
    return f"gathers indices {text}, which {'overlap' if any(a[1] > b[0] for a, b in pairwise(ordered)) else 'leave a gap'}"


def _side_by_side(world: World, pieces: Sequence[Value], dim: int) -> Value | None:
    """Return what slices of different values are together, in rank order; None where that has no form."""
    terms, bounds = world.terms, [piece.box[dim] for piece in pieces]
    outside = pieces[0].box[:dim], pieces[0].box[dim + 1 :]
    alike = all(piece.clean and (piece.box[:dim], piece.box[dim + 1 :]) == outside for piece in pieces)
    if not terms.arithmetic or not alike:
        return None
    if any(terms.whole(piece.term) != piece.term or terms.slot[piece.term] == dim for piece in pieces):
        return None
    part = [some_of(terms, piece.term, dim, low, high) for piece, (low, high) in zip(pieces, bounds, strict=True)]
    *starts, size = accumulate((high - low for low, high in bounds), initial=0)
    found = [(term, start) for term, start in zip(part, starts, strict=True) if term is not None]
    term = side_by_side(terms, found, dim, size) if len(found) == len(part) else None
    return None if term is None else world.values.clean(term, (*outside[0], (0, size), *outside[1]))


def _all_to_all(world: World, operator: Communicate, pieces: Sequence[Value], members: Sequence[int]) -> dict[int, Value]:
    split = _dim(operator, pieces[0])
    concat = operator.joined_dim
    if concat is None or not -len(pieces[0].box) <= concat < len(pieces[0].box):
        raise Mismatch("wrong-dimension", f"concatenates along dimension {concat}", refutes=True)
    concat %= len(pieces[0].box)
    count = len(members)
    try:
        if split == concat:
            received = ([chunk(world, piece, split, i, count) for piece in pieces] for i in range(count))
            return {
                rank: _concatenate(world, values, concat, members, False)
                for rank, values in zip(members, received, strict=True)
            }
        whole = _concatenate(world, pieces, concat, members, reorder=False)
        return {rank: chunk(world, whole, split, i, count) for i, rank in enumerate(members)}
    except Mismatch as mismatch:
        if world.alone and mismatch.name == "wrong-gather-dim":
            raise of_one_plan("wrong-all-to-all-dim", mismatch.message.replace("gathers", "joins", 1)) from mismatch
        raise Mismatch(mismatch.name, mismatch.message, refutes=False) from mismatch


def over_replicas(world: World, value: Value, replicas: int) -> Value:
    """Return the sum over all replicas of a value derived for one."""
    return _over_all(world, value, replicas, "one_replica", ("replica", "replicas"))


def over_micro_batches(world: World, value: Value, micro_batches: int) -> Value:
    """Return the sum over all micro-batches of a value derived for one."""
    return _over_all(world, value, micro_batches, "one_micro_batch", ("micro-batch", "micro-batches"))


def _over_all(world: World, value: Value, count: int, mark: str, words: tuple[str, str]) -> Value:
    """Return the sum over so many of a value derived for one; sums that are pending of one alone have the mark."""
    if count == 1:
        return value
    if value.fold is not None:
        raise Mismatch("wrong-reduce-op", f"adds {fold_text(value.fold)} of each {words[0]}", refutes=False)
    if world.terms.slot[value.term] >= 0:
        raise Mismatch("mismatched-shards", f"adds the slices that {words[1]} have of a batch", refutes=True)
    leaves: list[Leaf] = []
    for leaf in world.values.leaves_of(value):
        one = [entry for entry in leaf.pending if getattr(entry, mark)]
        if len(one) > 1:
            raise Mismatch("ambiguous-sum", f"is summed over {words[1]} in more than one way", refutes=False)
        if not one:
            leaves.append(leaf._replace(coefficient=leaf.coefficient * count))
            continue
        leaves.append(leaf._replace(pending=(leaf.pending - {one[0]}) | {one[0]._replace(**{mark: False})}))
    return world.values.of_leaves(value.term, value.box, leaves)
