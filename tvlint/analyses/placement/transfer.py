"""Placement of an operator's result on one mesh axis, from its operands and annotation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvlint.analyses.placement.domain import On, Shuffled, is_whole
from tvlint.ir.placement import Partial, Replicate, Shard
from tvlint.ops.spec import ONE, Bound, Names


@dataclass(frozen=True, slots=True)
class Form:
    """One contraction: operands and one result in named dimensions.

    `linear` are the sets of operands in which it is jointly linear. `shape_only` operands matter by their split alone. Of
    names in `greatest` the result is the greatest element; parts along names in `merged` are put together in ways of their own.
    """

    operands: tuple[Names, ...]
    output: Names
    reduced: frozenset[str]
    averaged: frozenset[str]
    whole: frozenset[str]
    linear: tuple[frozenset[int], ...]
    shape_only: frozenset[int] = frozenset()
    greatest: frozenset[str] = frozenset()
    merged: frozenset[str] = frozenset()
    rising: bool = False
    """The result grows with the only operand: the greatest of the results is the result of the greatest."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """A use that fails on this axis: the rule, the operand it is about, and another one."""

    rule: str
    operand: int
    other: int = -1


def forms(bound: Bound, rising: bool = False) -> Iterator[Form]:
    """Yield the contraction of every output.

    A table that is looked up in by indices may be split over its rows: each rank gives what it holds and zero for the rest.
    """
    linear = {position for group in bound.linear for position in group}
    holders = {name: {at for at, names in enumerate(bound.operands) if name in names} for name in bound.indices.values()}
    rows = frozenset(name for name, at in holders.items() if at and at <= linear)
    greatest = frozenset(name for name, results in bound.splits.items() if results == "max")
    mapped = frozenset(name for name, results in bound.splits.items() if results == "maps")
    merged = frozenset(name for name, results in bound.splits.items() if results == "merge")
    for position, output in enumerate(bound.outputs):
        used = bound.row_wise.get(position, frozenset(range(len(bound.operands))))
        unused = frozenset(range(len(bound.operands))) - used
        yield Form(
            bound.operands, output, bound.reduced | rows, bound.averaged, bound.whole - rows - greatest - mapped,
            bound.linear, bound.shape_only | unused, greatest, merged, rising,
        )  # fmt: skip


def on_axis(form: Form, operands: Sequence[On]) -> On | Wrong:
    """Return the result's placement on one axis, or what is wrong."""
    shuffled = _shuffled(form, operands)
    if shuffled is not None:
        return shuffled[0]
    split, wrong = _split(form, operands)
    partial = [at for at, placement in enumerate(operands) if isinstance(placement, Partial) and at not in form.shape_only]
    if partial:
        found = _partial(form, operands, partial)
        if found is not None or not _is_followed(form, partial, split):
            return found
    if form.merged & set(split):
        return None
    given = {ONE}.union(*(names for at, names in enumerate(form.operands) if at not in form.shape_only))
    for at, placement in enumerate(operands):
        if placement is None and (at not in form.shape_only or set(form.operands[at]) & set(form.output) - given):
            return None
    if wrong is not None:
        return wrong
    if partial:
        return operands[partial[0]]
    if not split:
        return Replicate()
    name, (shard, holder) = next(iter(split.items()))
    if name in form.whole:
        return Wrong("whole", holder)
    if name in form.greatest:
        return Partial("max")
    if name in form.reduced:
        return Partial("sum")
    if name in form.averaged:
        return Partial("avg")
    if name not in form.output:
        return None
    return Shard(form.output.index(name), shard.order, shard.parts)


def _shuffled(form: Form, operands: Sequence[On]) -> tuple[On | Wrong] | None:
    """Return the result where operands hold the pieces of a dimension in another order; None where no operand does."""
    given = [(at, placement) for at, placement in enumerate(operands) if isinstance(placement, Shuffled)]
    if not given:
        return None
    at, first = given[0]
    name = form.operands[at][first.dim] if first.dim < len(form.operands[at]) else ONE
    for position, placement in enumerate(operands):
        if name not in form.operands[position] or position in form.shape_only or placement == first:
            continue
        return (Wrong("shuffled", at, position) if is_whole(placement) else None,)
    others = [placement for placement in operands if not isinstance(placement, Shuffled)]
    if name in form.whole or not all(is_whole(placement) for placement in others):
        return (None,)
    return (Shuffled(form.output.index(name), first.order) if name in form.output else Replicate(),)


def _stays(form: Form, name: str) -> bool:
    """Return whether a dimension is one of the result's or goes in a sum; one that is joined with others does neither."""
    return name in form.output or name in form.reduced | form.averaged | form.greatest


def _split(form: Form, operands: Sequence[On]) -> tuple[dict[str, tuple[Shard, int]], Wrong | None]:
    """Return the names that are split over this axis, and what does not fit: one name split differently, or two names."""
    split: dict[str, tuple[Shard, int]] = {}
    for position, placement in enumerate(operands):
        if not isinstance(placement, Shard):
            continue
        names = form.operands[position]
        if not -len(names) <= placement.dim < len(names) or names[placement.dim] == ONE:
            return {}, None
        name = names[placement.dim]
        if position in form.shape_only and name not in form.output:
            continue
        first = split.get(name)
        if first is not None and (first[0].order, first[0].parts) != (placement.order, placement.parts):
            return split, Wrong("mismatched", first[1], position)
        split.setdefault(name, (placement, position))
    real = {name: held for name, held in split.items() if held[1] not in form.shape_only}
    if len(real) > 1 and any(_stays(form, name) for name in real):
        first_held, second_held = list(real.values())[:2]
        return split, Wrong("mismatched", first_held[1], second_held[1])
    for name, (_, holder) in split.items():
        for position, placement in enumerate(operands):
            if position not in form.shape_only and name in form.operands[position] and is_whole(placement):
                rule = "contraction" if name in form.reduced and holder not in form.shape_only else "mismatched"
                if holder in form.shape_only:
                    return split, None
                return split, Wrong(rule, holder, position)
    return split, None


def _partial(form: Form, operands: Sequence[On], partial: Sequence[int]) -> Wrong | None:
    """Return what is wrong with the use of partial operands, if anything."""
    first = partial[0]
    kinds = {placement.reduce for placement in (operands[at] for at in partial) if isinstance(placement, Partial)}
    if form.rising and len(form.operands) == 1 and kinds <= {"max", "min"}:
        return None
    for at in partial:
        if not any(at in group for group in form.linear):
            return Wrong("nonlinear", at)
    if kinds - {"sum", "avg"} and len(form.operands) - len(form.shape_only) > 1:
        return Wrong("nonlinear", first)
    return None


def _is_followed(form: Form, partial: Sequence[int], split: dict[str, tuple[Shard, int]]) -> bool:
    """Return whether partial operands are added to partial ones only, and meet no shards; relations follow what is more."""
    group = next((group for group in form.linear if partial[0] in group), frozenset(partial))
    return set(partial) == group and all(holder in form.shape_only for _, holder in split.values())
