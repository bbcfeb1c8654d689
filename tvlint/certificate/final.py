"""The end of the step: gradients over micro-batches and reducers, held against the reference's; what is returned; updates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, product
from math import prod

from tvlint.certificate.form import Part, Relation
from tvlint.certificate.meetings import Meeting, meeting_of, members_of, spans_replicas
from tvlint.certificate.multiples import agreed, plain
from tvlint.certificate.placed import region, whole_of
from tvlint.certificate.running import Running
from tvlint.certificate.sums import added, over_slots, scaled
from tvlint.certificate.tables import Rejected
from tvlint.ir.operators import Group, Operator, ReduceGradients, Update
from tvlint.ir.placement import Partial
from tvlint.ir.plan import Box, Plan, Role, Tensor


@dataclass(frozen=True, slots=True)
class Expected:
    """What the reference computes: the gradient of each weight by full name, all weights' shapes, and what it returns."""

    gradients: dict[str, Relation]
    shapes: dict[str, tuple[int, ...]]
    returned: tuple[int, ...]


def expected(run: Running) -> Expected:
    """What the reference computes, from its own check."""
    (rank,) = run.environments
    held = reduced(run, 1)
    gradients: dict[str, Relation] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    known: dict[str, Relation | None] = {}
    for tensor in run.plan.tensors.values():
        if tensor.role is Role.WEIGHT:
            name = tensor.logical or tensor.name
            if shapes.setdefault(name, whole_of(tensor)) != whole_of(tensor):
                raise Rejected(f"the reference has two weights `{name}` of different shapes")
            value = held.get((rank, tensor.name))
            if value is None and (rank, tensor.name) not in run.used:
                continue
            if known.setdefault(name, value) is not value or (value is not None and (value.parts or value.coefficient == 0)):
                raise Rejected(f"the reference's gradient of `{name}` is not whole, or not one")
            if value is None:
                continue
            gradients[name] = value
            if region(run.plan, tensor, rank) != value.box or value.box != tuple((0, size) for size in shapes[name]):
                raise Rejected(f"the reference has only a part of the gradient of `{name}`")
    found = [run.environments[rank].get(name) for name in run.plan.outputs]
    returned = tuple(own.term for own in found if own is not None)
    if not gradients or not returned or len(returned) != len(found):
        raise Rejected("the reference returns nothing, or computes no gradients")
    if any(own is not None and (own.parts or own.coefficient != 1) for own in found):
        raise Rejected("the reference returns a part of a value")
    whole = {name: scaled(run.world.tables, value, Fraction(run.plan.undivided)) for name, value in gradients.items()}
    return Expected(whole, shapes, returned)


def _operators(plan: Plan) -> Iterator[tuple[tuple[int, ...], Operator]]:
    for program in plan.programs:
        for step in program.steps:
            for own in plan.segments[step.segment].operators:
                yield program.ranks, own


def weights_of(run: Running) -> list[tuple[int, Tensor]]:
    """Every weight that a rank uses, reduces or has a gradient of."""
    seen = set(run.used) | {(rank, name) for rank, own in run.gradients.items() for name in own}
    for ranks, own in _operators(run.plan):
        if isinstance(own, ReduceGradients):
            seen.update((rank, name) for rank in ranks for name in own.weights)
    tensors = run.plan.tensors
    return [(rank, tensors[name]) for rank, name in sorted(seen) if name in tensors and tensors[name].role is Role.WEIGHT]


def reduced(run: Running, micro_batches: int) -> dict[tuple[int, str], Relation]:
    """Each rank's gradient of each weight, over all micro-batches and after all reducers; without an entry it is zero."""
    held = {
        (rank, name): over_slots(run.world.tables, value, micro_batches, "one_micro_batch")
        for rank, own in run.gradients.items()
        for name, value in own.items()
    }
    queues: dict[int, list[ReduceGradients]] = {rank: [] for program in run.plan.programs for rank in program.ranks}
    for ranks, own in _operators(run.plan):
        if isinstance(own, ReduceGradients):
            for rank in ranks:
                queues[rank].append(own)
    for queue in queues.values():
        queue.reverse()
    moved, shards = True, dict[tuple[int, str], list[tuple[int, int, bool]]]()
    while moved:
        moved = False
        for rank in [rank for rank, queue in queues.items() if queue]:
            members, key = (found := _meeting(run.plan, queues[rank], rank)).members, found.key
            if rank in members and all(_meeting(run.plan, queues.get(own, []), own).key == key for own in members):
                _reduce(run, members, [queues[own].pop() for own in members], held, shards)
                moved = True
    if any(queues.values()):
        raise Rejected("a gradient reducer meets no such reducer on all of its ranks")
    return held


def _meeting(plan: Plan, queue: list[ReduceGradients], rank: int) -> Meeting:
    return (meeting_of(plan, queue[-1], rank) if queue else None) or Meeting(None, None, ())


def _reduce(
    run: Running,
    members: tuple[int, ...],
    own: list[ReduceGradients],
    held: dict[tuple[int, str], Relation],
    shards: dict[tuple[int, str], list[tuple[int, int, bool]]],
) -> None:
    first, tables, plan = own[0], run.world.tables, run.plan
    everywhere = first.replicated or spans_replicas(plan, first.group)
    manners = {
        (tuple(_full_name(plan, name) for name in each.weights), each.reduce, each.divisor, each.scatter, each.replicated)
        for each in own
    }
    if len(manners) > 1 or first.reduce not in ("sum", "avg"):
        raise Rejected(f"the gradient reducers of the ranks {list(members)} differ, or take no sum")
    names = {name for each in own for name in each.weights}
    if any(name not in plan.tensors or plan.tensors[name].role is not Role.WEIGHT for name in names):
        raise Rejected(f"the gradient reducers of the ranks {list(members)} name what is no weight")
    for named in zip(*(each.weights for each in own), strict=True):
        slots = [*zip(members, named, strict=True)]
        pieces = [shards.setdefault(slot, []) for slot in slots]
        if any(own != pieces[0] for own in pieces) or (everywhere and any(over_all for *_, over_all in pieces[0])):
            raise Rejected(f"the shards of a gradient that the ranks {list(members)} have are reduced as if they were one")
        for place, piece in enumerate(pieces if first.scatter else ()):
            piece.append((place, len(pieces), everywhere))
        values = [held[slot] for slot in slots if slot in held]
        if not values:
            continue
        value, count = added(tables, values), len(members)
        if everywhere:
            value = over_slots(tables, value, plan.replication.count, "one_replica")
            count *= plan.replication.count
        value = scaled(tables, value, Fraction(1, (first.divisor or 1) * (count if first.reduce == "avg" else 1)))
        held.update(dict.fromkeys(slots, value))


def check_gradients(run: Running, wanted: Expected, micro_batches: int) -> int:
    """Every piece of every weight has exactly the reference's gradient; how many were compared."""
    held = reduced(run, micro_batches)
    covered: dict[str, set[Box]] = {}
    compared = set()
    for rank, tensor in weights_of(run):
        name = tensor.logical or tensor.name
        if wanted.shapes.get(name) != whole_of(tensor):
            raise Rejected(f"the weight `{name}` on rank {rank} is not one of the reference")
        box = region(run.plan, tensor, rank)
        covered.setdefault(name, set()).add(box)
        value, right = held.get((rank, tensor.name)), wanted.gradients.get(name)
        if right is None and value is None:
            continue
        if right is None or value is None:
            raise Rejected(f"the gradient of `{name}` on rank {rank} is zero here or in the reference, and not there")
        tables, claimed = run.world.tables, run.derivation.gradients.get((rank, tensor.name))
        unsaid = claimed is None and (rank, tensor.name) in run.used
        if unsaid or (claimed is not None and not agreed(tables, value, tables.claimed(claimed))):
            raise Rejected(f"the gradient of `{name}` on rank {rank} is not what the certificate says it is")
        if not agreed(tables, value, tables.relation(right.term, box, right.coefficient)):
            raise Rejected(f"the gradient of `{name}` on rank {rank} is not that of the reference")
        compared.add((rank, tensor.name))
    if not compared.issuperset(run.derivation.gradients):
        raise Rejected("the certificate speaks of gradients that the plan does not have")
    for name in wanted.gradients:
        if not covers(covered.get(name, set()), wanted.shapes[name]):
            raise Rejected(f"no rank holds all of the weight `{name}`, piece by piece")
    return len(compared)


def covers(boxes: set[Box], whole: tuple[int, ...]) -> bool:
    """Whether every element of the whole is in some box."""
    if tuple((0, size) for size in whole) in boxes:
        return True
    edges = [sorted({0, size, *(edge for box in boxes for edge in box[dim])}) for dim, size in enumerate(whole)]
    return all(
        any(all(low <= one and other <= high for (low, high), (one, other) in zip(box, cell, strict=True)) for box in boxes)
        for cell in product(*(pairwise(marks) for marks in edges))
    )


def check_returned(run: Running, wanted: Expected) -> None:
    """Ranks that return values return those of the reference, over their own part of the batch, and all of them."""
    plan, terms = run.plan, run.world.tables.terms
    if any(name in run.weight_of for name in plan.outputs):
        raise Rejected("the plan returns the gradient of a weight, which is no result of the reference")
    boxes: dict[tuple[str, int], set[Box]] = {}
    for rank, environment in run.environments.items():
        names = [name for name in plan.outputs if name in environment]
        if (names or plan.format.startswith("nnscaler-")) and len(names) != len(wanted.returned):
            raise Rejected(f"rank {rank} returns {len(names)} values and the reference {len(wanted.returned)}")
        for name, term in zip(names, wanted.returned, strict=False):
            value = _over_ranks(run, rank, name)
            value = plain(run.world.tables, value) if value.parts and value.term != term else value
            if value.term != term or not _of_its_slots(run, value):
                raise Rejected(f"`{name}`, which rank {rank} returns, is not what the reference returns")
            _check_declared(plan, name, rank, value.box)
            boxes.setdefault((name, term), set()).add(value.box)
    if not boxes or any(not covers(found, terms[term].shape) for (_, term), found in boxes.items()):
        raise Rejected("the ranks do not return all of what the reference returns")


def _over_ranks(run: Running, rank: int, name: str) -> Relation:
    """What `rank` returns, summed or averaged over the axes on which the plan declares it partial."""
    plan, tensor, value = run.plan, run.plan.tensors.get(name), run.environments[rank][name]
    placements = (tensor.placements if tensor is not None else None) or {}
    kinds = {axis: own.reduce for axis, own in placements.items() if isinstance(own, Partial)}
    averaged = tuple(axis for axis, kind in kinds.items() if kind == "avg")
    axes = (*averaged, *(axis for axis, kind in kinds.items() if kind == "sum"))
    if not set(kinds.values()) <= {"sum", "avg", "max", "min"}:
        raise Rejected(f"`{name}` is declared to be put together in a way that the checker does not know")
    if not axes:
        return value
    group = Group(axes=axes)
    parts = [run.environments.get(member, {}).get(name) for member in members_of(plan, group, rank)]
    found = [part for part in parts if part is not None]
    if len(found) != len(parts):
        raise Rejected(f"`{name}` is declared partial on ranks that do not return it")
    share = Fraction(1, prod(plan.mesh.axis_size(axis) for axis in averaged))
    total = added(run.world.tables, found)
    if spans_replicas(plan, group):
        total = over_slots(run.world.tables, total, plan.replication.count, "one_replica")
    return scaled(run.world.tables, total, share)


def _of_its_slots(run: Running, value: Relation) -> bool:
    """Whether the value is that of its slots of the batch: of a sum over the batch its addend, of a mean the mean over them."""
    if not value.parts:
        return value.coefficient == 1
    scopes = {(own.one_replica, own.one_micro_batch) for part in value.parts for own in part.sums}
    if run.world.tables.terms[value.term].slot >= 0 or len(scopes) != 1:
        return False
    return all(_is_addend(run, part) for part in value.parts)


def _is_addend(run: Running, part: Part) -> bool:
    if len(part.sums) != 1:
        return False
    (own,), plan = part.sums, run.plan
    head = run.world.tables.terms[own.origin].head
    mean = len(head) > 3 and isinstance(head[-2], tuple) and len(head[-2]) > 3 and own.number in head[-2][-2]
    share = (plan.replication.count if own.one_replica else 1) * (plan.micro_batches if own.one_micro_batch else 1)
    return (own.low, own.high) == (0, own.size) and (part.coefficient == 1 or (mean and part.coefficient == share))


def _check_declared(plan: Plan, name: str, rank: int, box: Box) -> None:
    """The slice of a returned value is the one that it is declared to be, where that is said."""
    tensor = plan.tensors.get(name)
    if tensor is None:
        return
    if tensor.part != (0, 1):
        raise Rejected(f"`{name}`, which rank {rank} returns, is no part of a sum")
    if tensor.region is None and tensor.placements is None:
        return
    shards = {axis: own for axis, own in (tensor.placements or {}).items() if not isinstance(own, Partial)}
    if region(plan, replace(tensor, placements=shards), rank) != box:
        raise Rejected(f"`{name}`, which rank {rank} returns, is another slice than the plan declares")


def check_updates(run: Running, wanted: Expected, reference: Plan) -> None:
    """Every weight that is trained is updated once on each rank that has it, and no other, unless the optimizer is left out.

    The reference trains what it updates, or all that has a gradient where it leaves the optimizer out.
    """
    times, theirs = _updated(run.plan), _updated(reference)
    alone = {_full_name(reference, name) for _, name in theirs}
    if not times:
        if alone and not run.plan.format.startswith("nnscaler-"):
            raise Rejected("the reference updates weights and the parallel plan does not say that it does")
        return
    if any(count > 1 for count in theirs.values()):
        raise Rejected("the reference updates a weight more than once")
    trained = alone or wanted.gradients.keys()
    for rank, tensor in weights_of(run):
        name = tensor.logical or tensor.name
        if name in wanted.gradients and name in trained and times[rank, tensor.name] != 1:
            raise Rejected(f"the weight `{name}` on rank {rank} is not updated once")
    for rank, own in times:
        if _full_name(run.plan, own) not in trained:
            raise Rejected(f"the weight `{own}` on rank {rank} is updated, and the reference does not train it")


def _updated(plan: Plan) -> Counter[tuple[int, str]]:
    return Counter(
        (rank, name) for ranks, own in _operators(plan) if isinstance(own, Update) for rank in ranks for name in own.weights
    )


def _full_name(plan: Plan, name: str) -> str:
    return (plan.tensors[name].logical or name) if name in plan.tensors else name
