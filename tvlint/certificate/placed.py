"""What is trusted: weights, buffers and inputs lie where the plans declare them; and how inputs of two plans correspond."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvlint.certificate.form import Relation
from tvlint.certificate.operators import World
from tvlint.certificate.tables import Rejected
from tvlint.ir.placement import Invariant, Replicate, Shard
from tvlint.ir.plan import Box, Phase, Plan, Role, Tensor


def region(plan: Plan, tensor: Tensor, rank: int) -> Box:
    """The box of the whole that `rank` is declared to hold."""
    whole = whole_of(tensor)
    box = tensor.region if tensor.region is not None else _placed(plan, tensor, whole, rank)
    fits = len(box) == len(whole) and all(0 <= low < high <= size for (low, high), size in zip(box, whole, strict=True))
    if tensor.part != (0, 1) or not fits or tuple(high - low for low, high in box) != tensor.shape:
        raise Rejected(f"`{tensor.name}` is not declared as one slice of shape {tensor.shape}")
    return box


def whole_of(tensor: Tensor) -> tuple[int, ...]:
    """The shape of the whole value that the tensor is a piece of."""
    return tensor.shape if tensor.whole is None else tensor.whole


def _placed(plan: Plan, tensor: Tensor, whole: tuple[int, ...], rank: int) -> Box:
    box = [(0, size) for size in whole]
    for axis in plan.mesh.axes:
        placement = (tensor.placements or {}).get(axis.name, Replicate())
        if isinstance(placement, Replicate | Invariant):
            continue
        if not isinstance(placement, Shard) or placement.order or placement.parts or not -len(box) <= placement.dim < len(box):
            raise Rejected(f"`{tensor.name}` is placed in a way that the checker does not know")
        low, high = box[placement.dim]
        step, rest = divmod(high - low, axis.size)
        if rest:
            raise Rejected(f"`{tensor.name}` does not divide over {axis.size} ranks")
        low += step * plan.mesh.coordinates(rank)[axis.name]
        box[placement.dim] = (low, low + step)
    return tuple(box)


def parameter(world: World, plan: Plan, tensor: Tensor, rank: int) -> Relation:
    """A weight or buffer on `rank`: its box of the parameter of that full name."""
    box = region(plan, tensor, rank)
    kind = "weight" if tensor.role is Role.WEIGHT else "buffer"
    whole = whole_of(tensor)
    term = world.tables.term((kind, tensor.logical or tensor.name, tensor.dtype, whole), (), whole, -1)
    return world.tables.relation(term, box)


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of both plans: numbers by full name; and by number, the shape of one slot and the dimension of the batch."""

    reference: dict[str, int]
    parallel: dict[str, int]
    shapes: tuple[tuple[int, ...], ...]
    slots: tuple[int, ...]
    count: int
    """How many slots (replica x micro-batch) the reference's batch has."""

    def assumed(self) -> tuple[str, ...]:
        """What is taken for granted where the plans have other names for their inputs."""
        names = {number: name for name, number in self.reference.items()}
        if self.reference.keys() == self.parallel.keys():
            return ()
        pairs = ", ".join(f"`{name}` is `{names[number]}`" for name, number in self.parallel.items())
        return (f"inputs that the plans name differently correspond in the order of their first use: {pairs}",)


def inputs_of(parallel: Plan, reference: Plan) -> Inputs:
    """How the inputs correspond: by name where the plans have the same names, else in the order of their first use."""
    inner, outer = _inputs(parallel), _inputs(reference)
    if len(inner) != len(outer) or (inner.keys() & outer.keys() and inner.keys() != outer.keys()):
        raise Rejected("the plans have different inputs")
    for plan in (parallel, reference):
        _check_one_whole(plan)
    first = [own[0] for own in inner.values()]
    batch = [own[0] for own in outer.values()]
    order = {name: i for i, name in enumerate(outer)}
    place = {name: order.get(name, i) for i, name in enumerate(inner)}
    if sorted(place.values()) != list(range(len(order))):
        raise Rejected("the plans have different inputs")
    first.sort(key=lambda own: place[own.logical or own.name])
    pairs = [_slot(whole_of(own), whole_of(one)) for own, one in zip(batch, first, strict=True)]
    counts = {count for count, _ in pairs}
    if len(counts) > 1:
        raise Rejected("the inputs are cut into different numbers of local batches")
    shapes = tuple(whole_of(own) for own in first)
    if [own.dtype for own in first] != [own.dtype for own in batch]:
        raise Rejected("the plans have inputs of different types")
    slots = tuple(slot for _, slot in pairs)
    return Inputs(order, place, shapes, slots, next(iter(counts), 1))


def _check_one_whole(plan: Plan) -> None:
    """All slices of one input are of one whole."""
    known: dict[str, tuple[tuple[int, ...], str]] = {}
    for tensor in plan.tensors.values():
        key, own = tensor.logical or tensor.name, (whole_of(tensor), tensor.dtype)
        if tensor.role is Role.INPUT and known.setdefault(key, own) != own:
            raise Rejected(f"the input `{key}` is declared with wholes of different shapes or types")


def _inputs(plan: Plan) -> dict[str, list[Tensor]]:
    segments = [plan.segments[step.segment] for program in plan.programs for step in program.steps]
    names = [name for own in segments if own.phase is Phase.DATA for name in own.outputs if name in plan.tensors]
    loaded = [plan.tensors[name] for name in names] or [own for own in plan.tensors.values() if own.role is Role.INPUT]
    found: dict[str, list[Tensor]] = {}
    for tensor in loaded:
        found.setdefault(tensor.logical or tensor.name, []).append(tensor)
    return found


def _slot(whole: tuple[int, ...], local: tuple[int, ...]) -> tuple[int, int]:
    """How many local batches make up the whole one, and in which dimension (-1: the batch is not cut)."""
    differing = [i for i, (one, other) in enumerate(zip(whole, local, strict=False)) if one != other]
    if (
        len(whole) != len(local)
        or len(differing) > 1
        or any(not local[i] or whole[i] % local[i] or whole[i] < local[i] for i in differing)
    ):
        raise Rejected(f"an input has shape {whole} in the reference and {local} in the parallel plan")
    return (whole[differing[0]] // local[differing[0]], differing[0]) if differing else (1, -1)


def input_of(world: World, plan: Plan, tensor: Tensor, rank: int, inputs: Inputs, number: int) -> Relation:
    """An input on `rank`: its box of the slot, any slot, of the batch; of all slots in the reference."""
    box = region(plan, tensor, rank)
    shape, slot = inputs.shapes[number], inputs.slots[number]
    term = world.tables.term(("input", number, tensor.dtype), (), shape, slot)
    if whole_of(tensor) != tuple(size * (world.slots if dim == slot else 1) for dim, size in enumerate(shape)):
        raise Rejected(f"`{tensor.name}` is a slice of another shape than the input has")
    if world.slots > 1 and slot >= 0:
        if box != tuple((0, size) for size in whole_of(tensor)):
            raise Rejected(f"the reference reads only a part of `{tensor.name}`")
        box = tuple((0, size) for size in shape)
    return world.tables.relation(term, box)


def check_pair(parallel: Plan, reference: Plan) -> None:
    """Programs fit their segments, ranks have one program each, replicas are those of one axis, the reference is one rank."""
    if len([rank for program in reference.programs for rank in program.ranks]) != 1 or reference.replication.count != 1:
        raise Rejected("the reference is not a plan of one device")
    for plan in (parallel, reference):
        ranks = [rank for program in plan.programs for rank in program.ranks]
        if not ranks or len(set(ranks)) != len(ranks) or any(not 0 <= rank < plan.mesh.size for rank in ranks):
            raise Rejected(f"`{plan.path}` has ranks that its mesh does not have, or a rank with two programs")
        for program in plan.programs:
            for step in program.steps:
                own = plan.segments.get(step.segment)
                ends = () if own is None else ((own.inputs, step.inputs), (own.outputs, step.outputs))
                if not ends or any(given is not None and len(given) != len(names) for names, given in ends):
                    raise Rejected(f"a step of `{plan.path}` does not fit its segment")
        stores = [tensor.storage for tensor in plan.tensors.values() if tensor.storage]
        if len(set(stores)) != len(stores):
            raise Rejected("two tensors share one buffer, which the checker does not follow")
    if len({plan.outputs.index(plan.loss) for plan in (parallel, reference) if plan.loss in plan.outputs}) > 1:
        raise Rejected("the loss of the plan is another result than that of the reference")
    _check_replicas(parallel)


def _check_replicas(plan: Plan) -> None:
    own, names = plan.replication, [axis.name for axis in plan.mesh.axes]
    ranks = [rank for program in plan.programs for rank in program.ranks]
    if own.count > 1:
        inner = plan.mesh.axes[names.index(own.axis) + 1 :] if own.axis in names else ()
        fits = own.axis in names and plan.mesh.axis_size(own.axis) == own.count
        if not fits or own.stride != prod(axis.size for axis in inner):
            raise Rejected("the replicas are not those of one axis of the mesh")
        if any(plan.mesh.coordinates(rank)[own.axis] for rank in ranks):
            raise Rejected("the programs are not those of the first replica")
        for tensor in plan.tensors.values():
            placed = (tensor.placements or {}).get(own.axis, Replicate())
            if tensor.role in (Role.WEIGHT, Role.BUFFER, Role.INPUT) and not isinstance(placed, Replicate | Invariant):
                raise Rejected(f"`{tensor.name}` lies otherwise in every replica")
