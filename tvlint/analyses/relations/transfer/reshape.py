"""Views: the same elements in the same order under another shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, TypeAlias

from tvlint.analyses.relations.terms import layouts
from tvlint.analyses.relations.transfer.context import Mismatch, World
from tvlint.analyses.relations.transfer.index_maps import Pieces, cut, joined, joined_dimensions, length, split_dimension
from tvlint.analyses.relations.transfer.relation import Value


def _groups(before: tuple[int, ...], after: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Runs of input and output dimensions with equal products, as short as possible."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        ins, outs = [i], [j]
        left, right = before[i], after[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right and i < len(before):
                left *= before[i]
                ins.append(i)
                i += 1
            elif right < left and j < len(after):
                right *= after[j]
                outs.append(j)
                j += 1
            else:
                raise Mismatch("wrong-view-size", f"views shape {before} as {after}", refutes=True)
        groups.append((ins, outs))
    if any(size != 1 for size in (*before[i:], *after[j:])):
        raise Mismatch("wrong-view-size", f"views shape {before} as {after}", refutes=True)
    if groups:
        groups[-1][0].extend(range(i, len(before)))
        groups[-1][1].extend(range(j, len(after)))
    elif after:
        groups.append(([], list(range(len(after)))))
    return groups


Reading: TypeAlias = tuple[tuple[Any, ...], tuple[int, ...], int, tuple[Pieces, ...]]
"""What a view may be of a term: the head, shape and slot of the result, and the pieces of each of its dimensions."""


def reshape(world: World, value: Value, after: tuple[int, ...]) -> Value:
    """Return the relation of the local tensor `value` viewed as local shape `after`."""
    return viewed(world, value, readings(world, value, after))


def readings(world: World, value: Value, after: tuple[int, ...]) -> tuple[Reading, ...]:
    """Return what a view of the local tensor as local shape `after` may be, which depends on the extent of the value alone.

    A run of dimensions is one dimension split into parts, or several joined. Where a size of 1 leaves it open which dimension
    was split, or pieces at equal distances are rows and columns, there are several.
    """
    before = world.local_shape(value)
    groups = _groups(before, after)
    whole = world.terms.whole(value.term)
    if not after and (prod(world.terms.shape[whole]) != 1 or world.terms.slot[whole] != -1):
        text = "views one element of several as a single number"
        raise Mismatch("reshape-of-split-dimension", text, refutes=False)
    choices = [list(_readings(world, value, ins, tuple(after[j] for j in outs))) for ins, outs in groups]
    if any(not choice for choice in choices):
        raise Mismatch(
            "reshape-of-split-dimension",
            f"views local shape {before} as {after}, which takes a split dimension apart",
            refutes=False,
        )
    found: list[Reading] = []
    for combination in product(*choices) if prod(map(len, choices)) <= 64 else (tuple(c[0] for c in choices),):
        shape = tuple(size for part in combination for _, size, _ in part)
        pieces = tuple(pieces for part in combination for pieces, _, _ in part)
        slotted = [k for k, flag in enumerate(flag for part in combination for _, _, flag in part) if flag]
        inner = tuple(
            (len(ins), tuple(size for _, size, _ in part[1:])) for (ins, _), part in zip(groups, combination, strict=True)
        )
        found.append((("view", inner), shape, slotted[0] if slotted else -1, pieces))
    return tuple(found)


def viewed(world: World, value: Value, choices: Sequence[Reading]) -> Value:
    """Return the relation of a view: the first of its readings that the table of terms has, else the one of the fewest pieces,
    of those whose shapes the reference views as each other, if there are any.
    """
    plain, views = world.values.out_of_pieces(value), world.terms.views
    before = world.terms.shape[plain.term]
    known = (choice for choice in choices if world.terms.find(choice[0], (plain.term,), *choice[1:3]) is not None)
    alike = [choice for choice in choices if (before, choice[1]) in views] or choices
    head, shape, slot, pieces = next(known, None) or min(alike, key=lambda choice: sum(map(len, choice[3])))
    if world.terms.sealed < 0:
        views.add((before, shape))
    term = _in_arithmetic(world, plain.term, [(given, 1 + len(rest)) for given, rest in head[1]], shape, slot)
    if term is None:
        term = world.terms.term(head, (plain.term,), shape, slot)
    box = tuple((0, length(piece)) for piece in pieces)
    return world.values.with_pieces(world.values.through(plain, term, 0, box, 1, frozenset()), pieces)


def _in_arithmetic(world: World, term: int, runs: Sequence[tuple[int, int]], shape: tuple[int, ...], slot: int) -> int | None:
    """Return the view in the form that arithmetic has of it, where terms have that form."""
    return layouts.viewed(world.terms, term, runs, shape, slot) if world.terms.arithmetic else None


Part: TypeAlias = tuple[tuple[Pieces, int, bool], ...]
"""Pieces, logical size and whether it is the slot, per output dimension of a run."""


def _readings(world: World, value: Value, ins: list[int], after: tuple[int, ...]) -> Iterator[Part]:
    whole, pieces = world.terms.whole(value.term), world.values.pieces_of(value)
    shape, slot = world.terms.shape[whole], world.terms.slot[whole]
    if not ins:
        yield tuple((((0, 1),), 1, False) for _ in after)
        return
    real = [i for i in ins if shape[i] != 1 or i == slot] or ins[:1]
    apart = any(pieces[i] != ((0, shape[i]),) for i in real[1:])
    if slot in real and (slot != real[0] or apart):
        return
    joined = joined_dimensions([(pieces[i], shape[i]) for i in real])
    if joined is None:
        return
    for lead, dims in split_dimension(joined, prod(shape[i] for i in real), after):
        yield tuple((pieces, size, slot in real and place == lead) for place, (pieces, size) in enumerate(dims))


def reshape_gradient(world: World, operand: Value, result: Value, gradient: Value) -> Value:
    """Return the gradient of the operand of a view whose result was `result`."""
    terms, values = world.terms, world.values
    if values.pieces_of(gradient) != values.pieces_of(result):
        raise Mismatch("mismatched-shards", "gets the gradient of another slice than its own", refutes=True)
    pieces = values.pieces_of(operand)
    operand, result, gradient = (values.out_of_pieces(value) for value in (operand, result, gradient))
    runs = [(len(made), len(given)) for given, made in _groups(terms.shape[operand.term], terms.shape[result.term])]
    term = _in_arithmetic(world, gradient.term, runs, terms.shape[operand.term], terms.slot[operand.term])
    if term is None:
        head = ("view gradient", terms.keys[result.term], terms.shape[operand.term])
        term = terms.term(head, (gradient.term,), terms.shape[operand.term], terms.slot[operand.term])
    return values.with_pieces(values.through(gradient, term, 0, operand.box, 1, frozenset()), pieces)


def stacked(world: World, pieces: Sequence[Value], dim: int) -> Value | None:
    """Return what equal pieces of another dimension are, in rank order along `dim`: the other dimension's outermost part is
    that of `dim` then, and each piece has the same indices of the rest. None where they are none, or that has no form.
    """
    first, count = pieces[0], len(pieces)
    shape = world.terms.shape[first.term]
    others = [at for at, bounds in enumerate(first.box) if bounds != pieces[-1].box[at]]
    if not world.terms.arithmetic or len(others) != 1 or others == [dim]:
        return None
    (other,) = others
    step, (low, high) = shape[other] // count, first.box[other]
    boxes = [(*first.box[:other], (i * step + low, i * step + high), *first.box[other + 1 :]) for i in range(count)]
    alike = {(piece.term, piece.leaves, piece.coefficient, piece.fold) for piece in pieces}
    if step * count != shape[other] or high > step or len(alike) > 1 or world.terms.whole(first.term) != first.term:
        return None
    term = layouts.moved(world.terms, first.term, count, other, dim) if [piece.box for piece in pieces] == boxes else None
    if term is None:
        return None
    ways: list[Pieces] = [(bounds,) for bounds in first.box]
    ways[dim] = joined((i * shape[dim] + start, i * shape[dim] + stop) for i in range(count) for start, stop in ways[dim])
    return in_ways(world, first, term, ways)


def unstacked(world: World, value: Value, dim: int, position: int, count: int) -> Value | None:
    """Return a piece along `dim` as one of another dimension of a value that the reference has; None where it has none."""
    terms, ways = world.terms, list(world.values.pieces_of(value))
    whole = terms.whole(value.term)
    (size, rest), (step, more) = divmod(terms.shape[whole][dim], count), divmod(length(ways[dim]), count)
    if not terms.arithmetic or not terms.foreign(whole) or rest or more or value.fold is not None:
        return None
    held = tuple(
        (low - position * size, high - position * size) for low, high in cut(ways[dim], position * step, (position + 1) * step)
    )
    if any(low < 0 or high > size for low, high in held):
        return None
    for other, way in enumerate(ways):
        term = layouts.moved(terms, whole, count, dim, other) if other != dim else None
        if term is not None and not layouts.is_foreign(terms, term):
            start = position * terms.shape[whole][other]
            ways[dim], ways[other] = held, tuple((start + low, start + high) for low, high in way)
            return in_ways(world, value, term, ways)
    return None


def in_ways(world: World, value: Value, term: int, ways: Sequence[Pieces]) -> Value:
    """Return the elements of a value as these pieces of another term."""
    box = tuple((0, length(way)) for way in ways)
    plain = world.values.through(world.values.out_of_pieces(value), term, 0, box, 1, frozenset())
    return world.values.with_pieces(plain, ways)
