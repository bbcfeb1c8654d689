"""The relations that are trusted: weights, buffers and inputs lie where the plan declares them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from math import prod
from typing import Any

from tvlint.analyses.relations.transfer.context import Mismatch, World
from tvlint.analyses.relations.transfer.index_maps import Pieces, cut, in_pieces, joined, length
from tvlint.analyses.relations.transfer.pending_ranges import Coefficient, Pending
from tvlint.analyses.relations.transfer.relation import Fold, Leaf, Value
from tvlint.ir.placement import Invariant, Partial, Replicate, Shard
from tvlint.ir.plan import Box, Phase, Plan, Role, Tensor
from tvlint.ir.reductions import EXTREMES
from tvlint.plurals import counted


@dataclass(frozen=True, slots=True)
class Inputs:
    """The plan's inputs in order, each with its whole shape for one replica and one micro-batch, and its dtype."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    number: dict[str, int] = field(default_factory=dict, hash=False)
    """Full name -> position."""

    def position(self, tensor: Tensor) -> int | None:
        """Return which of the inputs the tensor is a slice of; None for none of them."""
        return self.number.get(tensor.logical or tensor.name)


def has_blocks(plan: Plan) -> bool:
    """Return whether a rank is given ranges of a dimension that lie apart."""
    placements = (placement for tensor in plan.tensors.values() for placement in (tensor.placements or {}).values())
    shards = (placement for placement in placements if isinstance(placement, Shard))
    return any(after > before + 1 for shard in shards for places in shard.order for before, after in pairwise(places))


def inputs_of(plan: Plan) -> Inputs:
    """Return the inputs of the plan's first micro-batch, in the order in which the plan first uses them."""
    order: dict[str, Tensor] = {}
    for tensor in _first_inputs(plan):
        order.setdefault(tensor.logical or tensor.name, tensor)
    number = {key: i for i, key in enumerate(order)}
    shapes = tuple(whole_shape(tensor) for tensor in order.values())
    return Inputs(tuple(order), shapes, tuple(t.dtype for t in order.values()), number)


def _first_inputs(plan: Plan) -> list[Tensor]:
    found: list[Tensor] = []
    for step in plan.steps():
        segment = plan.segments[step.segment]
        if segment.phase is Phase.DATA:
            found.extend(plan.tensors[name] for name in segment.outputs if name in plan.tensors)
    return found or [tensor for tensor in plan.tensors.values() if tensor.role is Role.INPUT]


def declared_in_two_ways(plan: Plan) -> str:
    """Return an input of which the plan declares slices of wholes of different shapes or types; empty where there is none."""
    known: dict[str, tuple[tuple[int, ...], str]] = {}
    for tensor in plan.tensors.values():
        if tensor.role is not Role.INPUT:
            continue
        key, type_here = tensor.logical or tensor.name, (whole_shape(tensor), tensor.dtype)
        if known.setdefault(key, type_here) != type_here:
            return key
    return ""


def whole_shape(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape of the whole value that the tensor is a piece of."""
    return tensor.whole if tensor.whole is not None else tensor.shape


def region(plan: Plan, tensor: Tensor, rank: int) -> Box:
    """Return the box of the whole that `rank` holds, as declared.

    Raises Mismatch for a declaration that is not one box, or that does not fit the local shape.
    """
    pieces = pieces_held(plan, tensor, rank)
    if any(len(piece) > 1 for piece in pieces):
        text = f"`{tensor.name}` is placed in several pieces of one dimension, which are not followed"
        more = "give each part (query, key and value, or gate and up) a tensor of its own in both plans"
        if any(isinstance(placement, Shard) and placement.order for placement in (tensor.placements or {}).values()):
            more = "a plan that splits the dimension in its order can be proved"
        raise Mismatch("declared-placement", f"{text}: {more}", refutes=False)
    return tuple(bounds for (bounds,) in pieces)


def pieces_held(plan: Plan, tensor: Tensor, rank: int) -> tuple[Pieces, ...]:
    """Return the pieces of each dimension of the whole that `rank` holds, as declared.

    Raises Mismatch for a declaration that does not say which, or that does not fit the local shape.
    """
    whole = whole_shape(tensor)
    if tensor.part != (0, 1):
        raise Mismatch("declared-partial", f"`{tensor.name}` is declared to be a part of a sum", refutes=False)
    if _lies_anywhere(plan, tensor):
        raise Mismatch("declared-placement", f"of `{tensor.name}` no placement is declared", refutes=False)
    if tensor.placements and tensor.region is None:
        pieces = pieces_placed(plan, tensor, whole, rank)
    else:
        pieces = tuple((bounds,) for bounds in tensor.region or tuple((0, size) for size in whole))
    held = tuple(piece[0] if len(piece) == 1 else piece for piece in pieces)
    ends = [(bounds, size) for piece, size in zip(pieces, whole, strict=False) for bounds in piece]
    if len(pieces) != len(whole) or any(not 0 <= low < high <= size for (low, high), size in ends):
        raise Mismatch("bad-region", f"`{tensor.name}` is declared to hold {held} of shape {whole}", refutes=True)
    if tuple(map(length, pieces)) != tensor.shape:
        raise Mismatch("wrong-shape-claim", f"`{tensor.name}` of shape {tensor.shape} is declared to hold {held}", refutes=True)
    return pieces


def _lies_anywhere(plan: Plan, tensor: Tensor) -> bool:
    """Return whether nothing says which piece of a given value the ranks of a plan hold."""
    given = tensor.role in (Role.WEIGHT, Role.BUFFER, Role.INPUT)
    return given and plan.mesh.size > 1 and tensor.region is None and tensor.placements is None and tensor.whole is None


def pieces_placed(plan: Plan, tensor: Tensor, whole: tuple[int, ...], rank: int) -> tuple[Pieces, ...]:
    """Return the pieces of each dimension of the whole that the placements of the tensor give `rank`.

    Raises Mismatch for placements that do not say which.
    """
    coordinates = plan.mesh.coordinates(rank)
    pieces: list[Pieces] = [((0, size),) for size in whole]
    for axis in plan.mesh.axes:
        placement = (tensor.placements or {}).get(axis.name, Replicate())
        if isinstance(placement, Replicate | Invariant):
            continue
        if not isinstance(placement, Shard):
            text = f"`{tensor.name}` is declared to be a part of a sum"
            raise Mismatch("declared-placement", text, refutes=False)
        if not -len(whole) <= placement.dim < len(whole):
            raise Mismatch("declared-placement", f"`{tensor.name}` is sharded on dimension {placement.dim}", refutes=False)
        dim = placement.dim % len(whole)
        parted = bool(placement.order or placement.parts)
        if parted and (pieces[dim] != ((0, whole[dim]),) or (placement.order and placement.parts)):
            text = f"`{tensor.name}` is placed in several pieces of a dimension that another axis cuts too"
            raise Mismatch("declared-placement", text, refutes=False)
        held = _pieces_on_axis(placement, pieces[dim], axis.size, coordinates[axis.name])
        if held is None:
            raise Mismatch("uneven-shard", f"`{tensor.name}` does not divide over {counted(axis.size, 'rank')}", refutes=False)
        pieces[dim] = held
    return tuple(pieces)


def _pieces_on_axis(placement: Shard, held: Pieces, count: int, place: int) -> Pieces | None:
    """Return the pieces that are left at a place on an axis of so many; None where they do not divide."""
    total = length(held)
    chosen = placement.order[place] if placement.order and len(placement.order) == count else (place,)
    number = sum(map(len, placement.order)) or count
    if placement.order and (
        len(placement.order) != count or sorted(block for one in placement.order for block in one) != list(range(number))
    ):
        return None
    if placement.parts and sum(placement.parts) != total:
        return None
    found: list[tuple[int, int]] = []
    for part, size in enumerate(placement.parts or (total,)):
        start, (step, rest) = sum(placement.parts[:part]), divmod(size, number)
        if rest:
            return None
        for block in chosen:
            found.extend(cut(held, start + block * step, start + (block + 1) * step))
    return joined(found)


def parameter(world: World, plan: Plan, tensor: Tensor, rank: int) -> Value:
    """Return the relation of a weight or buffer on `rank`: its box of the parameter of that full name."""
    pieces = pieces_held(plan, tensor, rank)
    term = world.terms.term(parameter_head(plan, tensor), (), whole_shape(tensor), -1)
    return world.values.clean(*in_pieces(world.terms, term, pieces))


def parameter_head(plan: Plan, tensor: Tensor) -> tuple[Any, ...]:
    """Return the head of the term of a weight, buffer or state."""
    return (_kind(plan, tensor), tensor.logical or tensor.name, tensor.dtype, whole_shape(tensor))


def as_declared(world: World, plan: Plan, tensor: Tensor, rank: int, head: tuple[Any, ...], slot: int = -1) -> Value:
    """Return the relation of a given tensor to the whole value that `head` names, with the parts of sums that it is declared to
    be: the coordinate on each of their axes is a range of its own.
    """
    whole, sizes = whole_shape(tensor), {axis.name: axis.size for axis in plan.mesh.axes}
    placements = tensor.placements or {}
    parts = {
        axis: placement.reduce
        for axis, placement in placements.items()
        if isinstance(placement, Partial) and sizes.get(axis, 1) > 1
    }
    kept = {axis: placement for axis, placement in placements.items() if not isinstance(placement, Partial)}
    pieces = pieces_held(plan, replace(tensor, placements=kept) if parts else tensor, rank)
    given = world.terms.term(head, (), whole, slot)
    term, box = in_pieces(world.terms, given, pieces)
    if not parts:
        return world.values.clean(term, box)
    at, numbers = plan.mesh.coordinates(rank), {axis: -2 - place for place, axis in enumerate(sizes)}
    if set(parts.values()) <= {"sum", "avg"}:
        pending = frozenset(Pending(given, numbers[axis], at[axis], at[axis] + 1, sizes[axis], False, False) for axis in parts)
        coefficient: Coefficient = prod(sizes[axis] for axis, reduce in parts.items() if reduce == "avg")
        return world.values.of_leaves(term, box, (Leaf(world.terms.token(("given", given)), coefficient, pending),))
    if len(parts) == 1 and EXTREMES.issuperset(parts.values()):
        ((axis, kind),) = parts.items()
        return world.values.folded(term, box, Fold(kind, numbers[axis], ((at[axis], at[axis] + 1),), sizes[axis]))
    raise Mismatch("declared-partial", f"`{tensor.name}` is declared to be parts of several kinds", refutes=False)


def _kind(plan: Plan, tensor: Tensor) -> str:
    """Return what the tensor is a piece of; a state that is declared to be of a weight holds that weight, in its own type."""
    weight = plan.tensors.get(tensor.logical)
    if tensor.role is Role.STATE and weight is not None and weight.role is Role.WEIGHT and weight.dtype == tensor.dtype:
        return "weight"
    return tensor.role.value


@dataclass(frozen=True, slots=True)
class Batch:
    """How the global batch is cut into slots, of which the parallel plan holds one in one micro-batch of one replica.

    A micro-batch of the reference holds several of them, or one of several parts of one.
    """

    dims: tuple[int, ...]
    """The dimension of each input that slots cut; -1 for none."""
    whole_shapes: tuple[tuple[int, ...], ...]
    slots: int
    held: int
    parts: int


def batch_of(reference: Inputs, parallel: Inputs, times: tuple[int, int]) -> Batch:
    """Return how both plans cut the batch. Raises Mismatch where their inputs are not those of one batch.

    `times` are how many micro-batches the reference and all replicas of the parallel plan run. Where both run as many, of one
    shape, they are the same slots along whichever dimension the loader cuts them; it is taken to be the first.
    """
    if len(reference.names) != len(parallel.names):
        raise _other_inputs(
            f"the reference reads {counted(len(reference.names), 'input')} and the parallel plan {len(parallel.names)}"
        )
    if reference.dtypes != parallel.dtypes:
        here, there = (", ".join(inputs.dtypes) for inputs in (parallel, reference))
        raise _other_inputs(f"inputs have dtypes {there} in the reference and {here} here")
    ratio: Fraction | None = None
    dims: list[int] = []
    for name, whole, local in zip(reference.names, reference.shapes, parallel.shapes, strict=True):
        differing = [i for i, (a, b) in enumerate(zip(whole, local, strict=False)) if a != b]
        sizes = [(whole[i], local[i]) for i in differing]
        fits = len(whole) == len(local) and len(differing) <= 1 and all(size for _, size in sizes)
        ratios = {Fraction(*pair) for pair in sizes} if fits else set()
        if not fits or any(one * times[0] % 1 or ratio not in (None, one) for one in ratios):
            raise _other_inputs(f"input `{name}` has shape {whole} in the reference and {local} in the parallel plan")
        ratio = next(iter(ratios), ratio)
        dims.append(differing[0] if differing else -1)
    if ratio is not None and -1 in dims:
        raise _other_inputs("some inputs are cut into replicas and micro-batches and others are not")
    batches = (1 if ratio is None else ratio) * times[0]
    if batches != times[1]:
        text = f"the reference's batch is {batches} local batches, and the plan has {times[1]}, in all replicas"
        raise Mismatch("other-batch", text, refutes=False)
    if ratio is None and times[0] > 1:
        single = next((name for name, shape in zip(reference.names, reference.shapes, strict=True) if not shape), None)
        if single is not None:
            raise _other_inputs(f"input `{single}` is one number, which each micro-batch may have another of")
        dims = [0 for _ in reference.shapes]
    share = Fraction(times[1], times[0])
    if 1 not in share.as_integer_ratio():
        text = f"{times[0]} micro-batches of the reference and {times[1]} of the plan are no parts of each other"
        raise Mismatch("other-batch", text, refutes=False)
    wholes = tuple(
        tuple(size * times[0] if i == dim else size for i, size in enumerate(shape))
        for shape, dim in zip(reference.shapes, dims, strict=True)
    )
    return Batch(tuple(dims), wholes, times[1], *share.as_integer_ratio())


def _other_inputs(text: str) -> Mismatch:
    return Mismatch("other-inputs", text, refutes=False)
