"""Random numbers that operators draw, as values of their own.

What is drawn is a term that belongs to the operands whose elements it is drawn for, and to the count of draws for the same
elements before, on the same rank. An operator that draws is then pure, with the numbers as one more operand, and its gradient
uses the same numbers. Draws of one rank are never taken for one another: a draw for elements that had one gets the next count.
Draws of different ranks for one element are one draw by assumption, which the verdict lists, unless the plan says otherwise.

A value without a batch dimension has no slot, so that one draw of the reference would stand for those of all micro-batches and
replicas, which draw anew; that is not decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tvlint.analyses.dataflow.mesh_axes import batch_axes
from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.state import Machine, RankState
from tvlint.analyses.relations.transfer.context import indices_of
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import Compute
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


def note_drawn(machine: Machine, rank: RankState, operator: Compute, draws: Sequence[Value]) -> None:
    """Note what an operator draws on a rank, where the plan says along which axes that differs."""
    segment = rank.segment.name if rank.segment else ""
    for value in draws if operator.draws_over is not None else ():
        machine.derived.drawn.setdefault(value.term, {})[rank.number] = operator, segment, value.box


def wrong_draws(machine: Machine) -> Iterator[Defect]:
    """Yield the operators that draw other numbers for one element than another rank, and the same for other elements.

    Ranks with batches of their own may draw the same for theirs, as trainers do that start all replicas with one state. That is
    no mistake, and not the reference either, which draws for each element.
    """
    plan, batch = machine.plan, batch_axes(machine.plan)
    replicas = plan.replication.axis if plan.replication.count > 1 else ""
    for held in machine.derived.drawn.values():
        for rank in held:
            for axis in (axis.name for axis in plan.mesh.axes if axis.size > 1):
                others = [other for other in plan.mesh.along(rank, (axis,)) if other != rank and other in held]
                if others or axis == replicas:
                    yield from _against(held, rank, others, axis, axis in batch or axis == replicas)


def _against(
    held: Mapping[int, tuple[Compute, str, Box]], rank: int, others: Sequence[int], axis: str, is_of_batch: bool
) -> Iterator[Defect]:
    """Yield what is wrong with the draw of a rank, compared with those of the ranks along an axis."""
    operator, segment, box = held[rank]
    apart = axis in (operator.draws_over or ())
    shared = any(_overlap(box, held[other][2]) for other in others)
    text = f"`{operator.op}` on {{ranks}} draws "
    if apart and shared:
        text += f"other random numbers than ranks along `{axis}`, which hold the same elements"
    elif not apart and not shared:
        text += f"the same random numbers as ranks along `{axis}`, which hold other elements"
    else:
        return
    yield at(operator, segment, Defect("wrong-draws", apart or not is_of_batch, text, rank))


def _count(before: list[list[Box]], box: Box) -> int:
    """Return how many draws there were for the elements of the box; the draw is added to those `before`, each stated by its
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
