"""Values of which placements leave something over: their length does not divide into as many pieces as there are ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import overwritten, reads, writes
from tvlint.analyses.dataflow.local_shapes import Undivided, floored_shape
from tvlint.ir.operators import ReduceGradients, Update
from tvlint.ir.plan import Plan, Tensor


@dataclass(frozen=True, slots=True)
class Remainder:
    """`what` does not divide in `tensor`, which is first met at (`segment`, `index`)."""

    tensor: Tensor
    what: Undivided
    segment: str
    index: int


def remainders(plan: Plan) -> Iterator[Remainder]:
    """Tensors whose local shape is that of a whole which does not divide, rounded down or up; of weights and inputs where
    there are any.

    Shards that are given with another local shape, or with one of their own on some ranks, are unequal on purpose.
    """
    placed = [tensor for tensor in plan.tensors.values() if tensor.placements and tensor.whole is not None]
    shapes = {(tensor.logical or tensor.name): set[tuple[int, ...]]() for tensor in placed}
    for tensor in placed:
        shapes[tensor.logical or tensor.name].add(tensor.shape)
    found = [
        (tensor, what)
        for tensor in placed
        if len(shapes[tensor.logical or tensor.name]) == 1 and (what := _undivided(plan, tensor)) is not None
    ]
    if not found:
        return
    places = _places(plan)
    given = [each for each in found if each[0].name not in places or not places[each[0].name][2]]
    for tensor, what in given or found[:1]:
        if tensor.name in places:
            yield Remainder(tensor, what, *places[tensor.name][:2])


def _undivided(plan: Plan, tensor: Tensor) -> Undivided | None:
    if not tensor.placements or tensor.whole is None or tensor.region is not None:
        return None
    try:
        shape, what = floored_shape(plan.mesh, tensor.whole, tensor.placements)
    except ValueError:
        return None
    if what is None or shape == tensor.shape:
        return what
    if what.packed:
        return None
    rounded = list(tensor.whole)
    rounded[what.dim] += -what.length % what.pieces
    try:
        return what if floored_shape(plan.mesh, tuple(rounded), tensor.placements)[0] == tensor.shape else None
    except ValueError:
        return None


def _places(plan: Plan) -> dict[str, tuple[str, int, bool]]:
    """Return where the ranks first meet each name, and whether it is made there."""
    found: dict[str, tuple[str, int, bool]] = {}
    for segment in dict.fromkeys(step.segment for step in plan.steps()):
        for index, operator in enumerate(plan.segments[segment].operators if segment in plan.segments else ()):
            weights = operator.weights if isinstance(operator, ReduceGradients | Update) else ()
            for name in (*reads(operator), *overwritten(operator), *weights):
                found.setdefault(name, (segment, index, False))
            for name in writes(operator):
                found.setdefault(name, (segment, index, True))
    return found
