"""Views: the same elements in the same order under another shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, TypeAlias

from tvlint.analyses.relations.terms import layouts
from tvlint.analyses.relations.terms.terms import Telling
from tvlint.analyses.relations.transfer.context import Mismatch, World
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.plan import Box

Groups: TypeAlias = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


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
    return groups


Reading: TypeAlias = tuple[tuple[Any, ...], tuple[int, ...], int, Box]
"""What a view may be of a term: the head, shape and slot of the result, and its box."""


def reshape(world: World, value: Value, after: tuple[int, ...]) -> Value:
    """The relation of the local tensor `value` viewed as local shape `after`."""
    return viewed(world, value, readings(world, value, after))


def readings(world: World, value: Value, after: tuple[int, ...]) -> tuple[Reading, ...]:
    """Return what a view of the local tensor as local shape `after` may be, which depends on the extent of the value alone.

    A run of dimensions is one dimension split into parts with the outermost part derived, or several joined: every
    dimension but the outermost of a run must be whole, otherwise the part held is not a box of the result. Where a size of 1
    leaves it open which dimension was split, there are several.
    """
    before = world.local_shape(value)
    groups = _groups(before, after)
    choices = [list(_readings(world, value, ins, tuple(after[j] for j in outs))) for ins, outs in groups]
    if any(not own for own in choices):
        raise Mismatch(
            "reshape-of-split-dimension",
            f"views local shape {before} as {after}, which takes a split dimension apart",
            refutes=False,
        )
    found: list[Reading] = []
    for combination in product(*choices) if prod(map(len, choices)) <= 64 else (tuple(c[0] for c in choices),):
        shape = tuple(size for part in combination for _, size, _ in part)
        box: Box = tuple(bounds for part in combination for bounds, _, _ in part)
        slotted = [k for k, flag in enumerate(flag for part in combination for _, _, flag in part) if flag]
        inner = tuple(
            (len(ins), tuple(size for _, size, _ in part[1:])) for (ins, _), part in zip(groups, combination, strict=True)
        )
        found.append((("view", inner), shape, slotted[0] if slotted else -1, box))
    return tuple(found)


def viewed(world: World, value: Value, choices: Sequence[Reading]) -> Value:
    """The relation of a view: the first of its readings that the table of terms has, else the first."""
    known = (own for own in choices if world.terms.find(own[0], (value.term,), *own[1:3]) is not None)
    head, shape, slot, box = next(known, choices[0])
    term = _in_arithmetic(world, value.term, [(given, 1 + len(rest)) for given, rest in head[1]], shape, slot)
    if term is None:
        term = world.terms.term(head, (value.term,), shape, slot)
    return world.values.through(value, term, 0, box, 1, frozenset())


def _in_arithmetic(world: World, term: int, runs: Sequence[tuple[int, int]], shape: tuple[int, ...], slot: int) -> int | None:
    """Return the view in the form that arithmetic has of it, where terms have that form."""
    return layouts.viewed(world.terms, term, runs, shape, slot) if world.terms.telling is Telling.ARITHMETIC else None


Part: TypeAlias = tuple[tuple[tuple[int, int], int, bool], ...]
"""Bounds, logical size and whether it is the slot, per output dimension of a run."""


def _readings(world: World, value: Value, ins: list[int], after: tuple[int, ...]) -> Iterator[Part]:
    shape, slot = world.terms.shape[value.term], world.terms.slot[value.term]
    real = [i for i in ins if shape[i] != 1 or i == slot] or ins[:1]
    outer, inner = real[0], real[1:]
    if any(value.box[i] != (0, shape[i]) or i == slot for i in inner):
        return
    step = prod(shape[i] for i in inner)
    low, high, size = value.box[outer][0] * step, value.box[outer][1] * step, shape[outer] * step
    for lead in range(len(after)):
        if any(after[k] != 1 for k in range(lead)):
            return
        below = prod(after[lead + 1 :])
        if low % below or high % below or size % below:
            continue
        ones: Part = tuple(((0, 1), 1, False) for _ in range(lead))
        rest: Part = tuple(((0, own), own, False) for own in after[lead + 1 :])
        yield (*ones, ((low // below, high // below), size // below, outer == slot), *rest)


def reshape_gradient(world: World, operand: Value, result: Value, gradient: Value) -> Value:
    """The gradient of the operand of a view whose result was `result`."""
    if gradient.box != result.box:
        raise Mismatch("mismatched-shards", "gets the gradient of another slice than its own", refutes=True)
    terms = world.terms
    runs = [(len(made), len(given)) for given, made in _groups(world.local_shape(operand), world.local_shape(result))]
    term = _in_arithmetic(world, gradient.term, runs, terms.shape[operand.term], terms.slot[operand.term])
    if term is None:
        head = ("view gradient", terms.keys[result.term], terms.shape[operand.term])
        term = terms.term(head, (gradient.term,), terms.shape[operand.term], terms.slot[operand.term])
    return world.values.through(gradient, term, 0, operand.box, 1, frozenset())
