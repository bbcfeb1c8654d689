"""What an operator makes of relations: forward operators and their vector-Jacobian products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod

from tvlint.ops.spec import ONE, Names, UnsupportedError
from tvlint.proof.identities import term_of
from tvlint.proof.pending import Coefficient, Pending
from tvlint.proof.products import bare, rational, times
from tvlint.proof.relation import Fold, Leaf, Value
from tvlint.proof.uses import Use
from tvlint.proof.world import Index, Mismatch, World, canonical, indices_of, numbered
from tvlint.proof.written import normal


def _seen(name: str, index: Index, masked: tuple[str, str] | None, indices: Mapping[str, Index]) -> tuple[int, int, int]:
    """The indices of `name` that count, and the number of all that do.

    Of columns under a mask those up to the last row count; of rows those from the first column, which counts as the first.
    """
    if masked is not None and not index.slotted and name in masked:
        rows, columns = (indices.get(own) for own in masked)
        if rows is not None and columns is not None and not (rows.slotted or columns.slotted):
            first, last = (0, min(rows.high, columns.size)) if name == masked[1] else (min(columns.low, rows.size), rows.size)
            return max(index.low, first) - first, max(min(index.high, last), first) - first, last - first
    return index.low, index.high, index.size


def _contraction(
    world: World,
    term: int,
    names: frozenset[str],
    indices: Mapping[str, Index],
    numbers: Mapping[str, int],
    masked: tuple[str, str] | None,
) -> frozenset[Pending] | None:
    """What is not yet summed after summing over `names`; None where a mask leaves nothing."""
    pending = set()
    for name in names:
        index = indices.get(name)
        if index is None or name not in numbers:
            continue
        low, high, size = _seen(name, index, masked, indices)
        if low >= high:
            return None
        replica = index.slotted and world.slots == 1 and world.many_replicas
        micro_batch = index.slotted and world.slots == 1 and world.many_micro_batches
        entry = Pending(term, numbers[name], low, high, size, replica, micro_batch)
        if not entry.complete():
            pending.add(entry)
    return frozenset(pending)


def _averaging(world: World, names: frozenset[str], indices: Mapping[str, Index], total_slots: int) -> Coefficient:
    """What makes a mean over the local elements a part of the mean over all."""
    factor: Coefficient = 1
    for name in names:
        index = indices[name]
        everything = index.size * (total_slots if index.slotted else 1)
        here = (index.high - index.low) * (world.slots if index.slotted else 1)
        if everything != here:
            factor = factor * Fraction(everything, here)
    return factor


def run(world: World, use: Use, total_slots: int) -> Value:
    """The relation of the operator's result, in normal form where terms are told in that.

    Raises Mismatch where the result is not a linear contribution to what the operator computes on whole operands.
    """
    if not world.terms.normal:
        return _run(world, use, total_slots)
    terms, counted = world.terms, 1
    if use.averaged and use.head[0] in ("mean", "mean gradient"):
        indices = indices_of(world, use.operands)
        counted = prod(indices[name].size * (total_slots if indices[name].slotted else 1) for name in use.averaged)
        summed = replace(
            use,
            head=(use.head[0].replace("mean", "sum"), *use.head[1:]),
            reduced=use.reduced | (use.averaged - set(use.result)),
        )
        factor = _averaging(world, use.averaged, indices, total_slots)
        found = world.values.scaled(_run(world, replace(summed, averaged=frozenset()), total_slots), factor)
    else:
        found = _run(world, use, total_slots)
    inner, constant = bare(terms, found.term)
    told = normal(terms, terms.keys[inner], terms.operands[inner], terms.shape[inner], terms.slot[inner])
    return world.values.retermed(found, times(terms, times(terms, told, constant), rational(Fraction(1, counted))))


def _run(world: World, use: Use, total_slots: int) -> Value:
    indices = indices_of(world, use.operands)
    _check_whole(use, indices)
    if sum(index.slotted for index in indices.values()) > 1:
        raise Mismatch("batch-with-itself", "pairs the batch with itself", refutes=False)
    for name, (start, stop) in use.ranges.items():
        held = indices[name]
        if held.slotted:
            raise Mismatch("needs-whole-batch", "states a range of a batch that replicas or micro-batches split", refutes=False)
        if (start, stop) == (0, held.size) != (held.low, held.high):
            raise _split(held, next(i for i, (names, _) in enumerate(use.operands) if name in names))
        if (start, stop) != (held.low, held.high):
            raise Mismatch(
                "wrong-range",
                f"states the range {start}:{stop} where its operand holds {held.low}:{held.high}",
                refutes=True,
            )
    real = [(i, names, value) for i, (names, value) in enumerate(use.operands) if i not in use.shape_only]
    order = list(range(len(real)))
    if use.commutative and real[0][2].term > real[1][2].term:
        order[0], order[1] = 1, 0
    pattern = canonical([*(real[i][1] for i in order), use.result], (use.reduced, use.averaged, use.whole))
    operands = tuple(real[i][2].term for i in order)
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
        if index.slotted:
            slot = dim
    extra = tuple(shape[d] for d, name in enumerate(use.result) if name != ONE and name not in _names_of(real))
    head = (*use.head, pattern, extra)
    if world.terms.normal:
        term = world.terms.term(head, operands, tuple(shape), slot)
    else:
        term = term_of(world.terms, head, operands, tuple(shape), slot)
    numbers = numbered([*(real[i][1] for i in order), use.result])
    summed = (use.reduced | use.averaged) - frozenset(use.result)
    pending = _contraction(world, term, summed, indices, numbers, use.masked)
    fold = _folded(use, indices, numbers)
    if fold is not None or pending is None:
        i = next((i for i, _, value in real if not (value.clean if fold is not None else not value.fold)), None)
        if i is not None:
            raise _incomplete(use.operands[i][1], i)
        if fold is not None:
            return world.values.folded(term, tuple(box), fold)
        return world.values.multiple(term, tuple(box), 0)
    factor = _averaging(world, use.averaged, indices, total_slots)
    return _linear_result(world, use, real, order, term, tuple(box), factor, pending)


def _folded(use: Use, indices: Mapping[str, Index], numbers: Mapping[str, int]) -> Fold | None:
    """What the result has seen of a folded dimension that is not whole."""
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


def _names_of(real: Sequence[tuple[int, Names, Value]]) -> set[str]:
    return {name for _, names, _ in real for name in names}


def _needs_no_more(name: str, index: Index, masked: tuple[str, str] | None, indices: Mapping[str, Index]) -> bool:
    """Whether these are the first rows under a mask, which count from the first, or the columns that the rows look at."""
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
        raise _split(index, operand, refutes=str(use.head[0]).removesuffix(" gradient") not in _REARRANGES)


def _split(index: Index, operand: int, refutes: bool = True) -> Mismatch:
    text = f"needs a whole dimension of {index.size} and gets indices {index.low}:{index.high} of it"
    return Mismatch("split-dimension", text, refutes=refutes, operand=operand)


def _linear_result(
    world: World,
    use: Use,
    real: Sequence[tuple[int, Names, Value]],
    order: Sequence[int],
    term: int,
    box: tuple[tuple[int, int], ...],
    factor: Coefficient,
    pending: frozenset[Pending],
) -> Value:
    """The result when some operands are parts or multiples of their terms."""
    values = world.values
    position = {real[i][0]: place for place, i in enumerate(order)}
    unclean = [(i, value) for i, _, value in real if not value.clean]
    if not unclean:
        if not pending and factor == 1:
            return values.clean(term, box)
        carrier = values.clean(term, box)
        return values.through(carrier, term, "start", box, factor, pending)
    if any(value.fold is not None for _, value in unclean):
        i, value = next((i, value) for i, value in unclean if value.fold is not None)
        if len(real) == 1 and use.head[0] in _MOVES and not pending and factor == 1:
            return values.through(value, term, 0, box, 1, pending)
        raise _incomplete(value, i)
    groups = {next((g for g in use.linear if i in g), None) for i, _ in unclean}
    if None in groups:
        i, value = next((i, v) for i, v in unclean if not any(i in g for g in use.linear))
        raise _incomplete(value, i)
    partial = [(i, value) for i, value in unclean if value.leaves]
    partial_groups = {next(g for g in use.linear if i in g) for i, _ in partial}
    if len(partial_groups) > 1:
        raise Mismatch(
            "partial-times-partial",
            "multiplies two partial sums, so that products of parts on different ranks are missing",
            refutes=True,
            operand=partial[1][0],
        )
    joint = next((g for g in use.linear if len(g) > 1 and any(i in g for i, _ in unclean)), None)
    for i, value in unclean:
        if not value.leaves and (joint is None or i not in joint):
            factor = factor * value.coefficient
    if joint is None:
        if not partial:
            return values.through(values.clean(term, box), term, "start", box, factor, pending)
        ((i, value),) = partial
        return values.through(value, term, position[i], box, factor, pending)
    if any(i not in joint for i, _ in partial):
        raise Mismatch("partial-times-scaled", "multiplies a partial sum with a multiple", refutes=False)
    token = world.terms.token
    leaves = [
        Leaf(token((leaf.token, term, position[i])), leaf.coefficient * factor, leaf.pending | pending)
        for i, _, value in real
        if i in joint
        for leaf in values.leaves_of(value)
    ]
    return values.of_leaves(term, box, leaves)


_REARRANGES = frozenset({"cat", "cumsum", "index", "narrow", "pad", "select", "slice", "split", "stack"})
"""Operators that take a part of a dimension as well and make of it what may be right, but is not a part of their result."""

_MOVES = frozenset({"unsqueeze", "squeeze", "transpose", "permute", "expand"})
"""Operators that move elements and compute nothing, so that a maximum of parts stays one."""


def fold_text(fold: Fold) -> str:
    """What a value is that has not seen all of a folded dimension."""
    seen = ", ".join(f"{low}:{high}" for low, high in fold.covered) or "none"
    what = {"max": "a maximum", "merge": "attention", "gradient": "the gradient of attention"}[fold.kind]
    return f"{what} over indices {seen} of {fold.size}"


def _incomplete(value: Value, operand: int) -> Mismatch:
    if value.fold is not None:
        text = f"uses {fold_text(value.fold)} as if it were complete"
        wrong = value.fold.kind != "gradient" and bool(value.fold.covered)
        return Mismatch("part-used-as-complete", text, refutes=wrong, operand=operand)
    if value.leaves:
        return Mismatch("partial-used-as-complete", "uses a partial sum as if it were complete", refutes=True, operand=operand)
    return Mismatch(
        "scaled-value", f"uses {value.coefficient} times the value as if it were the value", refutes=True, operand=operand
    )
