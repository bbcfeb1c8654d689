"""Random numbers that operators draw, as values of their own.

What is drawn is a term that belongs to the operands whose elements it is drawn for, and to the count of draws for the same
elements before, on the same rank. An operator that draws is then pure, with the numbers as one more operand, and its gradient
uses the same numbers. Draws of one rank are never taken for one another: a draw for elements that had one gets the next count.
Draws of different ranks for one element are one draw by assumption, which the verdict lists.

A value without a batch dimension has no slot, so that one draw of the reference would stand for those of all micro-batches and
replicas, which draw anew; that is not decided.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvlint.analyses.relations.derivation.state import Machine, RankState
from tvlint.analyses.relations.transfer.context import indices_of
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.plan import Box
from tvlint.ops.spec import Bound, UnsupportedError


def drawn(machine: Machine, rank: RankState, op: str, bound: Bound, values: Sequence[Value]) -> tuple[Value, ...]:
    """Return the numbers that one run of `op` on the rank draws, if it draws any; the annotation is that without them.

    Raises Mismatch where the operands do not fit, UnsupportedError where it is open which draw of the reference it is.
    """
    if bound.draws is None:
        return ()
    world = machine.world
    of = [(bound.operands[i], values[i]) for i in bound.draws.of]
    if any(value.fold is not None or world.terms.whole(value.term) != value.term for _, value in of):
        raise UnsupportedError(f"`{op}` draws random numbers for a value that is not complete, or in several pieces")
    indices = [indices_of(world, of)[name] for name in bound.draws.names]
    slot = next((i for i, index in enumerate(indices) if index.slotted), -1)
    if slot < 0 and machine.total_slots > 1:
        raise UnsupportedError(f"`{op}` draws random numbers for a value without a batch dimension, anew in every micro-batch")
    box = tuple((index.low, index.high) for index in indices)
    terms = tuple(value.term for _, value in of)
    count = _count(rank.draws.setdefault((op, terms), []), box)
    term = world.terms.term(("draw", op, count), terms, tuple(index.size for index in indices), slot)
    return (world.values.clean(term, box),)


def _count(before: list[list[Box]], box: Box) -> int:
    """Return how many draws there were for the elements of the box; the draw is added to those `before`, each told by its
    boxes.
    """
    for count, boxes in enumerate(before):
        if not any(_overlap(box, each_box) for each_box in boxes):
            boxes.append(box)
            return count
    before.append([box])
    return len(before) - 1


def _overlap(one: Box, other: Box) -> bool:
    return all(a < d and c < b for (a, b), (c, d) in zip(one, other, strict=True))
