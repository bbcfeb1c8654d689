"""In which order the pieces of a dimension stand that is split over two axes, or put together from parts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import gcd

from tvlint.analyses.placement.axes import MODEL_AXES, SEQUENCE_AXES
from tvlint.analyses.placement.domain import On, Shuffled
from tvlint.analyses.placement.state import Walk
from tvlint.ir.operators import Collective, Communicate, Compute, Literal
from tvlint.ir.placement import Replicate, Shard
from tvlint.ir.plan import Role
from tvlint.ops.spec import Trait
from tvlint.ops.table import canonical_name, has_trait

_SPLITS = (Collective.CHUNK, Collective.SCATTER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL)


def strided(walk: Walk, operator: Communicate, source: str, axes: Sequence[str]) -> dict[str, On]:
    """Return how a value lies on the inner axis of a dimension that two axes split, once it is gathered over the outer one
    alone.

    The earlier axis of the mesh is the outer one where nothing else splits values over it; weights may be split in turns of
    their own, and what is split over model axes is often split over those last, wherever the mesh has them.
    """
    tensor = walk.plan.tensors.get(source)
    if operator.kind is not Collective.ALL_GATHER or operator.dim is None or tensor is None:
        return {}
    if len(axes) != 1 or axes[0] in MODEL_AXES:
        return {}
    rank, mesh = len(tensor.shape), walk.plan.mesh
    if tensor.role in (Role.WEIGHT, Role.STATE) or not rank or not -rank <= operator.dim < rank:
        return {}
    dim, on = operator.dim % rank, walk.value(source).on
    held = [axis.name for axis in mesh.axes if axis.name in walk.axes and _splits(on.get(axis.name), dim, rank)]
    if len(held) != 2 or held[0] != axes[0] or any(on.get(axis) is None for axis in walk.axes) or _split_again(walk, axes[0]):
        return {}
    outer, inner = mesh.axis_size(held[0]), mesh.axis_size(held[1])
    if outer * inner > 4096:
        return {}
    order = tuple(tuple(block * inner + index for block in range(outer)) for index in range(inner))
    return {held[1]: Shard(dim, order)}


def _splits(on: On, dim: int, rank: int) -> bool:
    return isinstance(on, Shard) and on.dim % rank == dim and not on.order and not on.parts


def _split_again(walk: Walk, axis: str) -> bool:
    """Return whether anything in the plan splits values over the axis."""

    def find() -> frozenset[str]:
        every = [axis.name for axis in walk.plan.mesh.axes]
        return frozenset(
            name for segment in walk.plan.segments.values() for operator in segment.operators
            if isinstance(operator, Communicate) and operator.kind in _SPLITS for name in operator.group.axes or every
        )  # fmt: skip

    return axis in walk.facts.derived("axes that values are split over", find)


def noted(walk: Walk, operator: Compute) -> None:
    """Note which slices of a value the operator takes."""
    narrow = canonical_name(operator.op) == "narrow"
    source = operator.inputs[0] if operator.inputs else None
    shape = walk.shape(source) if isinstance(source, str) else None
    constants = [operand.value for operand in operator.inputs[1:] if isinstance(operand, Literal)]
    if not isinstance(source, str) or not shape or not (narrow or has_trait(operator.op, Trait.APART)):
        return
    at = 0 if narrow else 1
    dim = operator.attributes.get("dim", constants[at] if len(constants) > at else 0)
    if not isinstance(dim, int) or not -len(shape) <= dim < len(shape):
        return
    dim %= len(shape)
    low = operator.attributes.get("start", constants[1] if len(constants) > 1 else None) if narrow else 0
    for name in operator.outputs:
        local_shape = walk.shape(name)
        if (
            local_shape is None
            or len(local_shape) != len(shape)
            or not isinstance(low, int)
            or not 0 <= low <= shape[dim] - local_shape[dim]
        ):
            return
        walk.pieces[name] = source, dim, low, low + local_shape[dim]
        low += local_shape[dim]


def reordered(walk: Walk, operator: Compute) -> dict[str, On]:
    """Return how the slices of one gathered value lie that are put together again, all of them: by axis, where it was
    gathered in rank order and is no longer, or the other way round. Parts of a sequence are loaded in orders that no plan
    states.
    """
    slices = [walk.pieces.get(name) for name in operator.inputs if isinstance(name, str)]
    if len(slices) < 2 or slices[0] is None or any(each is None or each[:2] != slices[0][:2] for each in slices):
        return {}
    source, dim = slices[0][:2]
    taken = [each_slice[2:] for each_slice in slices if each_slice is not None]
    shape, along = walk.shape(source), operator.attributes.get("dim", 0)
    ends = [low for low, _ in sorted(taken)] + [max(high for _, high in taken)]
    whole = ends[0] == 0 and shape is not None and ends[-1] == shape[dim]
    if shape is None or not isinstance(along, int) or along % len(shape) != dim or not whole:
        return {}
    if sorted(taken) != list(itertools.pairwise(ends)):
        return {}
    found: dict[str, On] = {}
    for axis in walk.axes:
        on = walk.value(source).on.get(axis)
        if isinstance(on, Shuffled) and on.dim == dim:
            before = on.order
        elif isinstance(on, Replicate) and _gathered(walk, source, dim, axis) and axis not in SEQUENCE_AXES:
            before = tuple(range(walk.plan.mesh.axis_size(axis)))
        else:
            continue
        unit = gcd(shape[dim] // len(before), *ends) or 1 if shape[dim] % len(before) == 0 else 1
        if shape[dim] // unit > 4096:
            continue
        finer = shape[dim] // len(before) // unit
        pieces = [piece * finer + part for piece in before for part in range(finer)]
        order = tuple(piece for low, high in taken for piece in pieces[low // unit : high // unit])
        found[axis] = Replicate() if order == tuple(range(len(order))) else Shuffled(dim, order)
    return found


def _gathered(walk: Walk, name: str, dim: int, axis: str) -> bool:
    """Return whether a gather of shards along the dimension, over the axis, gave the value."""
    made = walk.producer.get(name)
    maker = walk.plan.segments[made[0]].operators[made[1]] if made is not None else None
    if not isinstance(maker, Communicate) or maker.kind is not Collective.ALL_GATHER or maker.dim is None:
        return False
    shape = walk.shape(name) or ()
    return bool(shape) and maker.dim % len(shape) == dim and axis in (walk.axes_of(maker.group) or ())
