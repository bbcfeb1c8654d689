"""Transfer the extents of operands (boxes, and shapes and slots of their terms) to those of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

from tvlint.analyses.relations.terms.constant_factors import bare
from tvlint.analyses.relations.terms.loss_identities import multiplied
from tvlint.analyses.relations.terms.numbers import root_of
from tvlint.analyses.relations.transfer.context import Index, Mismatch, World, canonical, indices_of, numbered
from tvlint.analyses.relations.transfer.index_maps import Pieces
from tvlint.analyses.relations.transfer.operator_uses import Use
from tvlint.analyses.relations.transfer.pending_ranges import Coefficient, Pending
from tvlint.analyses.relations.transfer.relation import Fold, Value
from tvlint.ir.plan import Box
from tvlint.ops.spec import ONE, Trait, UnsupportedError
from tvlint.ops.table import has_trait


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one use of an operator, as far as it does not depend on the terms of its operands.

    `counted` are the operands with values that count, in the order in which the term has them; `pending` is what is not yet
    summed, of no origin yet, None where a mask leaves nothing to sum.
    """

    places: tuple[int, ...]
    counted: tuple[int, ...]
    linear: tuple[frozenset[int], ...]
    head: tuple[Any, ...]
    shape: tuple[int, ...]
    slot: int
    box: Box
    factor: Coefficient
    pending: tuple[Pending, ...] | None
    fold: Fold | None
    commutative: bool


def result_of(world: World, use: Use, total_slots: int) -> Result:
    """Return what the use makes of its operands; raises Mismatch as `run` does, where that depends on their extents."""
    alone = world.alone and not str(use.head[0]).endswith(" gradient")
    indices = indices_of(world, use.operands, alone, use.reduced if world.alone else ())
    _check_whole(use, indices)
    entering = {name for i, (names, _) in enumerate(use.operands) if i not in use.shape_only for name in names} | {*use.result}
    if sum(index.slotted for name, index in indices.items() if name in entering) > 1 and not alone:
        raise Mismatch("batch-with-itself", "pairs the batch with itself", refutes=False)
    for name, (start, stop) in use.ranges.items():
        held = indices[name]
        if held.slotted:
            raise Mismatch("needs-whole-batch", "states a range of a batch that replicas or micro-batches split", refutes=False)
        if (start, stop) == (0, held.size) != (held.low, held.high):
            operand = next(i for i, (names, _) in enumerate(use.operands) if name in names)
            raise not_whole(use, name, (((held.low, held.high),), held.size), operand)
        if (start, stop) != (held.low, held.high):
            raise Mismatch(
                "wrong-range",
                f"states the range {start}:{stop} where its operand holds {held.low}:{held.high}",
                refutes=True,
            )
    counted = [i for i in range(len(use.operands)) if i not in use.shape_only]
    if use.commutative and in_order(world, [use.operands[i][1] for i in counted[:2]]) == (True,):
        counted[0], counted[1] = counted[1], counted[0]
    names_of = [use.operands[i][0] for i in counted]
    present = {name for names in names_of for name in names}
    box, shape, slot = [], [], -1
    for dim, name in enumerate(use.result):
        index = indices.get(name)
        if name == ONE or index is None:
            if name != ONE and name not in use.sizes:
                raise UnsupportedError(f"the size of `{name}` in a result of `{use.head[0]}` is declared nowhere")
            size = 1 if name == ONE else use.sizes[name]
            box.append((0, size))
            shape.append(size)
            continue
        box.append((index.low, index.high))
        shape.append(index.size)
        if index.slotted and slot < 0:
            slot = dim
    pattern = canonical([*names_of, use.result], (use.reduced, use.averaged, use.whole))
    extra = tuple(shape[d] for d, name in enumerate(use.result) if name != ONE and name not in present)
    numbers = numbered([*names_of, use.result])
    summed = (use.reduced | use.averaged) - frozenset(use.result)
    pending = _contraction(world, summed, indices, numbers, use.masked)
    fold = _folded(use, indices, numbers)
    complete = fold is None and pending is not None
    return Result(
        places=use.places,
        counted=tuple(counted),
        linear=use.linear,
        head=(*use.head, pattern, extra),
        shape=tuple(shape),
        slot=slot,
        box=tuple(box),
        factor=averaging(world, use.averaged, indices, total_slots) if complete else 1,
        pending=pending,
        fold=fold,
        commutative=use.commutative,
    )


def in_order(world: World, values: Sequence[Value]) -> tuple[bool, ...]:
    """Return of each pair of operands whether the second one comes before the first in a term; of a share beside a part of a
    sum its value counts.
    """
    parts = any(value.leaves for value in values)
    order = [share_of(world, value.term)[1] if parts and value.clean else value.term for value in values]
    return tuple([one > other for one, other in combinations(order, 2)])


def share_of(world: World, term: int) -> tuple[Fraction, int]:
    """Return the number that a term is multiplied with, and the rest; 1 and the term where it is no multiple of this plan."""
    terms = world.terms
    inner, (sign, square) = bare(terms, term)
    root = root_of(square)
    if inner != term and root is not None:
        return sign * root, inner
    below = multiplied(terms, term) if terms.is_own(term) else None
    return (Fraction(1), term) if below is None else below


def _seen(name: str, index: Index, masked: tuple[str, str] | None, indices: Mapping[str, Index]) -> tuple[int, int, int]:
    """Return the indices of `name` that count, and the number of all that do.

    Of columns under a mask those up to the last row count; of rows those from the first column, which counts as the first.
    """
    if masked is not None and not index.slotted and name in masked:
        rows, columns = (indices.get(each_name) for each_name in masked)
        if rows is not None and columns is not None and not (rows.slotted or columns.slotted):
            first, last = (0, min(rows.high, columns.size)) if name == masked[1] else (min(columns.low, rows.size), rows.size)
            return max(index.low, first) - first, max(min(index.high, last), first) - first, last - first
    return index.low, index.high, index.size


def _contraction(
    world: World,
    names: frozenset[str],
    indices: Mapping[str, Index],
    numbers: Mapping[str, int],
    masked: tuple[str, str] | None,
) -> tuple[Pending, ...] | None:
    """Return what is not yet summed after summing over `names`; None where a mask leaves nothing."""
    pending = set()
    for name in names:
        index = indices.get(name)
        if index is None or name not in numbers:
            continue
        low, high, size = _seen(name, index, masked, indices)
        if low >= high:
            return None
        replica = index.slotted and world.many_replicas
        micro_batch = index.slotted and world.many_micro_batches
        if index.slotted and (low, high) == (0, size // world.parts):
            high = size  # of one micro-batch, which is not all of the slot
        entry = Pending(-1, numbers[name], low, high, size, replica, micro_batch)
        if not entry.complete():
            pending.add(entry)
    return tuple(sorted(pending))


def averaging(world: World, names: frozenset[str], indices: Mapping[str, Index], total_slots: int) -> Coefficient:
    """Return what makes a mean over the local elements a part of the mean over all."""
    factor: Coefficient = 1
    for name in names:
        index = indices[name]
        everything = index.size * (total_slots if index.slotted else 1)
        here = (index.high - index.low) * (world.slots if index.slotted else 1)
        if everything != here:
            factor = factor * Fraction(everything, here)
    return factor


def _folded(use: Use, indices: Mapping[str, Index], numbers: Mapping[str, int]) -> Fold | None:
    """Return what the result has seen of a folded dimension that is not whole."""
    found = []
    for name, kind in use.splits.items():
        index = indices.get(name)
        if kind == "maps" or index is None or name in use.result:
            continue
        low, high, size = _seen(name, index, use.masked, indices)
        fold = Fold(kind, numbers[name], ((low, high),) if low < high else (), size)
        if not fold.complete():
            found.append(fold)
    if len(found) > 1:
        raise Mismatch("split-twice", "takes parts of two dimensions at once", refutes=False)
    return found[0] if found else None


def _needs_no_more(name: str, index: Index, masked: tuple[str, str] | None, indices: Mapping[str, Index]) -> bool:
    """Return whether these are the first rows under a mask, which count from the first, or the columns that these look at."""
    if masked is None or name not in masked:
        return False
    low, high, size = _seen(name, index, masked, indices)
    return index.low == 0 if name == masked[0] else low == 0 < size == high


def _check_whole(use: Use, indices: Mapping[str, Index]) -> None:
    for name in use.whole:
        index = indices.get(name)
        if index is None or (index.low == 0 and index.high == index.size and not index.slotted):
            continue
        if not index.slotted and (name in use.splits or _needs_no_more(name, index, use.masked, indices)):
            continue
        if index.slotted:
            raise Mismatch("needs-whole-batch", "needs a whole batch that replicas or micro-batches split", refutes=False)
        operand = next(i for i, (names, _) in enumerate(use.operands) if name in names)
        raise not_whole(use, name, (((index.low, index.high),), index.size), operand)


def not_whole(use: Use, name: str, held: tuple[Pieces, int], operand: int) -> Mismatch:
    """Return what is said of an operator that needs a whole dimension and gets pieces that are not all of it."""
    pieces, size = held
    text = ", ".join(f"{low}:{high}" for low, high in pieces)
    message = f"needs a whole dimension of {size} and gets indices {text} of it"
    refutes = not _rearranges(str(use.head[0])) and not _in_runs(use, name, pieces)
    return Mismatch("split-dimension", message, refutes=refutes, operand=operand)


def _in_runs(use: Use, name: str, pieces: Pieces) -> bool:
    """Return whether pieces of a dimension hold runs that the operator takes apart from each other."""
    run = use.runs.get(name)
    return run is not None and all(low % run == high % run == 0 for low, high in pieces)


def _rearranges(head: str) -> bool:
    """Return whether the operator may make of a part of a dimension what is right, though no part of its result."""
    traits = (Trait.JOIN, Trait.SCAN, Trait.RANGES, Trait.SELECTION, Trait.POSITIONAL)
    return has_trait(head.removesuffix(" gradient"), *traits)
