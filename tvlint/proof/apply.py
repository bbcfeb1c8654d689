"""What an operator makes of relations: forward operators and their vector-Jacobian products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from math import prod
from typing import Any

from tvlint.ops.spec import ONE, Bound, Names
from tvlint.proof.identities import term_of
from tvlint.proof.products import bare, rational, times
from tvlint.proof.relation import Coefficient, Fold, Leaf, Pending, Value, Values
from tvlint.proof.terms import Terms
from tvlint.proof.written import normal


class Mismatch(Exception):
    """The operator does not do here what it does in the reference, or that cannot be decided.

    `operand` is the position of the operand that is at fault, where one is.
    """

    def __init__(self, name: str, message: str, *, refutes: bool, operand: int | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.message = message
        self.refutes = refutes
        self.operand = operand


@dataclass(slots=True)
class World:
    """The tables of a proof and the plan that is being read into them.

    `slots` is how many slots (replica x micro-batch) of the global batch one local tensor holds: all of them in the
    reference, one in the parallel plan.
    """

    terms: Terms
    values: Values
    slots: int
    many_replicas: bool
    many_micro_batches: bool

    def logical_shape(self, value: Value, total_slots: int) -> tuple[int, ...]:
        """The shape of the whole value, of which the local tensor is a box."""
        slot = self.terms.slot[value.term]
        return tuple(size * (total_slots if i == slot else 1) for i, size in enumerate(self.terms.shape[value.term]))

    def local_shape(self, value: Value) -> tuple[int, ...]:
        """The shape of the local tensor that `value` describes."""
        slot = self.terms.slot[value.term]
        return tuple((high - low) * (self.slots if i == slot else 1) for i, (low, high) in enumerate(value.box))


@dataclass(frozen=True, slots=True)
class Index:
    """What one named dimension is in one use of an operator."""

    low: int
    high: int
    size: int
    slotted: bool


def indices_of(world: World, operands: Sequence[tuple[Names, Value]]) -> dict[str, Index]:
    """The box of every name, which all operands must agree on."""
    found: dict[str, Index] = {}
    for position, (names, value) in enumerate(operands):
        shape, slot = world.terms.shape[value.term], world.terms.slot[value.term]
        if len(names) != len(shape):
            text = f"takes {len(names)} dimensions of a tensor of {len(shape)}"
            raise Mismatch("mismatched-dimensions", text, refutes=False, operand=position)
        for dim, name in enumerate(names):
            low, high = value.box[dim]
            if name == ONE:
                if shape[dim] != 1 or dim == slot:
                    raise Mismatch("mismatched-dimensions", "broadcasts a dimension that is split", refutes=False)
                continue
            index = Index(low, high, shape[dim], dim == slot)
            known = found.setdefault(name, index)
            if known == index:
                continue
            if known.size == index.size and known.slotted == index.slotted:
                raise Mismatch(
                    "mismatched-slices",
                    f"combines indices {known.low}:{known.high} of one operand with {low}:{high} of another in one dimension",
                    refutes=not any(is_zero(own) for _, own in operands),
                    operand=position,
                )
            raise Mismatch(
                "mismatched-dimensions",
                f"combines dimensions of {known.size} and {index.size} elements, or a batch dimension with another",
                refutes=False,
                operand=position,
            )
    return found


def is_zero(value: Value) -> bool:
    """Whether the value is known to be zero, of whatever it is a part: no times its term, or attention to no keys."""
    return (value.coefficient == 0 and not value.leaves) or (value.fold is not None and not value.fold.covered)


def canonical(tensors: Sequence[Names], sets: Sequence[frozenset[str]]) -> tuple[tuple[int, ...], ...]:
    """The names as numbers in order of appearance, so that the pattern does not depend on how names are chosen.

    After the tensors come the sets: which names are summed, averaged, and needed whole.
    """
    numbers = numbered(tensors)
    pattern = [tuple(numbers[name] for name in names) for names in tensors]
    pattern.extend(tuple(sorted(numbers[name] for name in names if name in numbers)) for names in sets)
    return tuple(pattern)


def numbered(tensors: Sequence[Names]) -> dict[str, int]:
    """The names in order of first appearance."""
    numbers: dict[str, int] = {ONE: -1}
    for names in tensors:
        for name in names:
            numbers.setdefault(name, len(numbers) - 1)
    return numbers


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


@dataclass(frozen=True, slots=True)
class Use:
    """An operator in use: annotated operands with values, the annotated result, and what identifies the computation."""

    head: tuple[Any, ...]
    operands: tuple[tuple[Names, Value], ...]
    result: Names
    reduced: frozenset[str]
    averaged: frozenset[str]
    whole: frozenset[str]
    linear: tuple[frozenset[int], ...]
    commutative: bool = False
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    shape_only: frozenset[int] = frozenset()
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Sizes of names of the result that no operand has."""
    splits: Mapping[str, str] = field(default_factory=dict)
    """Names of `whole` that may be split all the same, as in `Bound`."""
    masked: tuple[str, str] | None = None


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
            size = 1 if name == ONE else use.sizes[name]
            box.append((0, size))
            shape.append(size)
            continue
        box.append((index.low, index.high))
        shape.append(index.size)
        if index.slotted:
            slot = dim
    extra = tuple(shape[d] for d, name in enumerate(use.result) if name != ONE and name not in _names_of(real))
    own = world.terms.term if world.terms.normal else partial(term_of, world.terms)
    term = own((*use.head, pattern, extra), operands, tuple(shape), slot)
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


def forward_use(op: str, bound: Bound, output: int, values: Sequence[Value], sizes: Mapping[str, int]) -> Use:
    """The use of forward operator `op` that makes output `output`."""
    chosen = bound.row_wise.get(output, frozenset(range(len(values))))
    kept = sorted(chosen)
    renumber = {old: new for new, old in enumerate(kept)}
    linear = tuple(
        frozenset(renumber[i] for i in group if i in chosen) for group in bound.linear if any(i in chosen for i in group)
    )
    return Use(
        head=(op, output, bound.attributes),
        operands=tuple((bound.operands[i], values[i]) for i in kept),
        result=bound.outputs[output],
        reduced=bound.reduced,
        averaged=bound.averaged,
        whole=bound.whole,
        linear=linear,
        commutative=bound.commutative and len(kept) >= 2,
        ranges=bound.ranges,
        shape_only=frozenset(renumber[i] for i in bound.shape_only if i in chosen),
        sizes=sizes,
        splits=bound.splits,
        masked=bound.masked,
    )


def gradient_use(
    op: str,
    bound: Bound,
    operand: int,
    values: Sequence[Value],
    gradients: Mapping[int, Value],
    parts: frozenset[str] = frozenset(),
) -> Use | None:
    """The use that makes the gradient of tensor operand `operand`; None when no gradient that is given reaches it.

    `gradients` are the gradients of the outputs, by position. For an operator that is linear in the operand the gradient
    needs the operands outside its linear group; otherwise it needs all. A dimension that the result lacks is summed; one that
    some of the gradients lack must be whole, since parts of it would add theirs more often than once. `parts` are
    names that must be whole and need not be here, since the gradients are those of the merged results.
    """
    outputs = [
        output
        for output in sorted(gradients)
        if operand in bound.row_wise.get(output, frozenset(range(len(values)))) and operand not in bound.zero_gradient
    ]
    if not outputs:
        return None
    reach = frozenset().union(*(bound.row_wise.get(output, frozenset(range(len(values)))) for output in outputs))
    group = next((g for g in bound.linear if operand in g), frozenset())
    needs = [i for i in sorted(reach) if i not in group and i not in bound.shape_only]
    gradient_operands = [(bound.outputs[output], gradients[output]) for output in outputs]
    operands = [*gradient_operands, *((bound.operands[i], values[i]) for i in needs)]
    shape_only = frozenset({len(operands)})
    operands.append((bound.operands[operand], values[operand]))
    result = bound.operands[operand]
    present = {name for names, _ in operands for name in names}
    product = bool(group) and all(len(g) == 1 for g in bound.linear)
    linear: tuple[frozenset[int], ...] = (frozenset(range(len(outputs))),)
    if product:
        linear = (*linear, *(frozenset({len(outputs) + k}) for k, i in enumerate(needs) if frozenset({i}) in bound.linear))
    symmetric = bound.commutative and bool(group)
    shared = [set(bound.outputs[output]) for output in outputs]
    uneven = frozenset().union(*shared) - frozenset.intersection(*map(frozenset, shared)) - frozenset(result) - {ONE}
    return Use(
        head=(f"{op} gradient", () if symmetric else (operand, tuple(outputs)), bound.attributes),
        operands=tuple(operands),
        result=result,
        reduced=frozenset(present - set(result) - {ONE}),
        averaged=bound.averaged,
        whole=bound.whole | uneven,
        linear=linear,
        shape_only=shape_only,
        ranges=bound.ranges,
        splits={name: "maps" for name, kind in bound.splits.items() if kind == "maps" or name in parts},
        masked=bound.masked,
    )
