"""The end of the step: gradients summed over micro-batches, reduced over ranks, and compared with the reference's."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, product
from math import prod

from tvlint.ir.placement import Partial
from tvlint.ir.plan import Box, Compute, Group, Plan, ReduceGradients, Role, Tensor, Update
from tvlint.proof.apply import fold_text
from tvlint.proof.blame import scope_of
from tvlint.proof.exchange import over_replicas
from tvlint.proof.groups import members_of, spans_replicas
from tvlint.proof.machine import Derived, Slot
from tvlint.proof.placed import region
from tvlint.proof.relation import AmbiguousSumError, Leaf, Pending, Value
from tvlint.proof.trouble import Trouble, at
from tvlint.proof.world import Mismatch, World


@dataclass(frozen=True, slots=True)
class Expected:
    """The reference's gradient of every weight, by full name, and its losses."""

    gradients: Mapping[str, Value]
    shapes: Mapping[str, tuple[int, ...]]
    losses: tuple[int, ...]


def accumulated(world: World, value: Value, micro_batches: int) -> Value:
    """The sum over all micro-batches of a value derived for one."""
    if micro_batches == 1:
        return value
    if value.fold is not None:
        raise Mismatch("reduce-operator", f"adds {fold_text(value.fold)} of each micro-batch", refutes=False)
    if world.terms.slot[value.term] >= 0:
        raise Mismatch("mismatched-slices", "adds the slices that micro-batches have of a batch", refutes=True)
    leaves = []
    for leaf in world.values.leaves_of(value):
        one = [entry for entry in leaf.pending if entry.one_micro_batch]
        if len(one) > 1:
            raise Mismatch("ambiguous-sum", "is summed over micro-batches in more than one way", refutes=False)
        if not one:
            leaves.append(leaf._replace(coefficient=leaf.coefficient * micro_batches))
            continue
        pending = (leaf.pending - {one[0]}) | {one[0]._replace(one_micro_batch=False)}
        leaves.append(leaf._replace(pending=pending))
    return world.values.of_leaves(value.term, value.box, leaves)


def weights_of(plan: Plan, derived: Derived) -> Iterator[tuple[int, Tensor]]:
    """Every weight that a rank uses, also in what is not understood, or reduces."""
    seen = set(derived.used)
    for program in plan.programs:
        for segment in {step.segment for step in program.steps}:
            for operator in plan.segments[segment].operators:
                if isinstance(operator, (ReduceGradients, Compute)):
                    named = operator.weights if isinstance(operator, ReduceGradients) else operator.inputs
                    seen.update((rank, name) for rank in program.ranks for name in named if isinstance(name, str))
    for rank, name in sorted(seen):
        tensor = plan.tensors.get(name)
        if tensor is not None and tensor.role is Role.WEIGHT:
            yield rank, tensor


def reduced(
    world: World, plan: Plan, derived: Derived, micro_batches: int, troubles: list[Trouble]
) -> dict[tuple[int, str], Slot]:
    """Each rank's gradient of each weight (by the weight's name) after accumulation and all reducers."""
    held: dict[tuple[int, str], Slot] = {}
    for rank, tensor in weights_of(plan, derived):
        if tensor.name not in derived.gradients[rank]:
            continue
        value = derived.gradients[rank][tensor.name]
        try:
            held[rank, tensor.name] = None if value is None else accumulated(world, value, micro_batches)
        except Mismatch as mismatch:
            text = f"the gradient of `{tensor.logical or tensor.name}` on {{ranks}} {mismatch.message}"
            troubles.append(Trouble(mismatch.name, mismatch.refutes, text, rank))
            held[rank, tensor.name] = None
    _reduce_all(world, plan, held, troubles)
    return held


def _reduce_all(world: World, plan: Plan, held: dict[tuple[int, str], Slot], troubles: list[Trouble]) -> None:
    """Run the reducers: each when it is the next one of all its members."""
    queues: dict[int, deque[tuple[str, ReduceGradients]]] = {}
    for program in plan.programs:
        found = [
            (step.segment, operator)
            for step in program.steps
            for operator in plan.segments[step.segment].operators
            if isinstance(operator, ReduceGradients)
        ]
        queues.update({rank: deque(found) for rank in program.ranks})
    moved = True
    while moved:
        moved = False
        for rank, queue in queues.items():
            if not queue:
                continue
            key = _meeting(plan, queue[0][1], rank)
            if (
                any(not queues.get(own) or _meeting(plan, queues[own][0][1], own) != key for own in key[0])
                or rank not in key[0]
            ):
                continue
            _reduce(world, plan, key[0], {own: queues[own].popleft() for own in key[0]}, held, troubles)
            moved = True
    for rank, queue in queues.items():
        for segment, operator in queue:
            members = list(members_of(plan, operator.group, rank))
            text = f"the gradient reducer of {{ranks}} over the ranks {members} meets no such reducer on all of them"
            troubles.append(at(operator, segment, Trouble("reducers-disagree", True, text, rank)))
            held.update({(rank, name): None for name in operator.weights})


def _meeting(plan: Plan, operator: ReduceGradients, rank: int) -> tuple[tuple[int, ...], bool, str]:
    """What tells the reducers apart that a rank can meet."""
    group = operator.group
    return members_of(plan, group, rank), spans_replicas(plan, group), group.name


def _reduce(
    world: World,
    plan: Plan,
    members: tuple[int, ...],
    operators: Mapping[int, tuple[str, ReduceGradients]],
    held: dict[tuple[int, str], Slot],
    troubles: list[Trouble],
) -> None:
    """Reduce what the members hold; a gradient that a member never computes is zero there."""
    segment, first = operators[members[0]]
    weights = [operator.weights for _, operator in operators.values()]
    kinds = {(own.reduce, own.divisor, own.scatter, own.replicated) for _, own in operators.values()}
    if any(names != weights[0] for names in weights) or len(kinds) > 1:
        how = "reduce in different ways" if len(kinds) > 1 else "name different weights, or in another order"
        for own in operators:
            text = f"the gradient reducers of the ranks {list(members)} {how}"
            troubles.append(at(first, segment, Trouble("reducers-disagree", True, text, own)))
            held.update({(own, name): None for name in first.weights})
        return
    for name in first.weights:
        there = [member for member in members if (member, name) in held]
        if not there:
            continue
        values = [held[member, name] for member in there]
        known = [value for value in values if value is not None]
        total: Slot = None
        try:
            total = _total(world, plan, first, name, known, len(members)) if len(known) == len(values) else None
        except Mismatch as mismatch:
            text = f"the reducer of `{plan.tensors[name].logical or name}` on {{ranks}} {mismatch.message}"
            for member in members:
                troubles.append(at(first, segment, Trouble(mismatch.name, mismatch.refutes, text, member)))
        held.update({(member, name): total for member in members})


def _total(world: World, plan: Plan, operator: ReduceGradients, name: str, values: list[Value], count: int) -> Value:
    if operator.reduce not in ("sum", "avg"):
        raise Mismatch("reduce-operator", f"reduces with `{operator.reduce}`", refutes=False)
    if any(value.fold is not None for value in values):
        raise Mismatch("reduce-operator", "adds results over parts, which have to be put together", refutes=False)
    weight = plan.tensors[name]
    whole = weight.whole or weight.shape
    of = world.terms.find(("weight", weight.logical or name, weight.dtype, whole), (), whole, -1)
    try:
        total = world.values.sum_over(-1 if of is None else of, values) if len(values) > 1 else values[0]
    except AmbiguousSumError:
        text = "adds contributions that are parts of the same value in different ways"
        raise Mismatch("ambiguous-sum", text, refutes=False) from None
    if total is None:
        raise Mismatch("mismatched-slices", "sums gradients of different slices", refutes=True)
    if operator.replicated or spans_replicas(plan, operator.group):
        total = over_replicas(world, total, plan.replication.count)
        count *= plan.replication.count
    divisor = (operator.divisor or 1) * (count if operator.reduce == "avg" else 1)
    return world.values.scaled(total, Fraction(1, divisor))


def judge(
    world: World, plan: Plan, derived: Derived, expected: Expected, held: Mapping[tuple[int, str], Slot]
) -> Iterator[Trouble]:
    """What is wrong with the final gradients; nothing when every piece of every weight has exactly the reference's gradient."""
    covered: dict[str, list[Box]] = {}
    open_names: set[str] = set()
    for rank, tensor in weights_of(plan, derived):
        name = tensor.logical or tensor.name
        if name not in expected.shapes:
            yield Trouble(
                "unknown-weight", False, f"the weight `{name}` on {{ranks}} has no counterpart in the reference", rank
            )
            continue
        if tensor.whole is not None and tensor.whole != expected.shapes[name]:
            text = f"the weight `{name}` is {tensor.whole} where the reference has {expected.shapes[name]}"
            yield Trouble("wrong-weight-shape", True, text, rank)
            continue
        try:
            box = region(plan, tensor, rank)
        except Mismatch as mismatch:
            yield Trouble(mismatch.name, mismatch.refutes, f"on {{ranks}}, {mismatch.message}", rank)
            open_names.add(name)
            continue
        covered.setdefault(name, []).append(box)
        if name in expected.gradients:
            yield from _judged(world, plan, name, rank, box, expected.gradients[name], held.get((rank, tensor.name), "missing"))
        elif (rank, tensor.name) in held:
            text = f"the weight `{name}` on {{ranks}} gets a gradient and in the reference it gets none"
            yield Trouble("gradient-of-frozen-weight", False, text, rank)
    for name, whole in expected.shapes.items():
        if name in expected.gradients and name not in open_names and not _covers(covered.get(name, []), whole):
            text = f"no rank of the parallel plan holds all of the weight `{name}`, piece by piece"
            yield Trouble("uncovered-weight", True, text, plan.programs[0].ranks[0])


def _judged(world: World, plan: Plan, name: str, rank: int, box: Box, right: Value, value: Slot | str) -> Iterator[Trouble]:
    subject = f"the gradient of `{name}` on {{ranks}}"
    if value is None:
        yield _of_many("undecided-gradient", "depends on something that is wrong or undecided before", name, rank)
        return
    if isinstance(value, str):
        yield Trouble("missing-gradient", True, f"{subject} is never computed", rank)
        return
    if value.box != box:
        yield Trouble("gradient-of-another-slice", True, f"{subject} is that of another slice than the weight's", rank)
        return
    pending = sorted(entry for leaf in value.leaves for entry in leaf.pending)
    if value.term != right.term:
        yield _of_many("other-gradient", "is not the expression that the reference computes", name, rank)
    elif value.fold is not None:
        text = f"{subject} is {fold_text(value.fold)}"
        yield Trouble("incomplete-gradient", False, text, rank)
    elif pending:
        text = f"{subject} is a partial sum, {scope_of(pending[0])}, that nothing completes"
        yield Trouble("incomplete-gradient", True, text, rank, expected="a complete sum", actual=scope_of(pending[0]))
    elif value.leaves:
        yield Trouble("unequal-addends", True, f"{subject} adds some of its addends more often than others", rank)
    elif value.coefficient != right.coefficient:
        factor = Fraction(value.coefficient) / right.coefficient
        yield Trouble(
            "scaled-gradient",
            True,
            f"{subject} is {factor} times the reference's",
            rank,
            expected="1",
            actual=str(factor),
        )


def _of_many(kind: str, text: str, name: str, rank: int) -> Trouble:
    """What one mistake does to the gradients of many weights, told once for all of them."""
    return Trouble(kind, False, f"the gradient of {{subject}} on {{ranks}} {text}", rank, subject=name, cause=(kind,))


def _covers(boxes: list[Box], whole: tuple[int, ...]) -> bool:
    """Whether every element of the whole is in some box."""
    distinct = set(boxes)
    edges = [sorted({0, size, *(edge for box in distinct for edge in box[dim])}) for dim, size in enumerate(whole)]
    cells = product(*(pairwise(marks) for marks in edges))
    return all(
        any(all(low <= a and b <= high for (low, high), (a, b) in zip(box, cell, strict=True)) for box in distinct)
        for cell in cells
    )


def judge_updates(plan: Plan, reference: Plan, derived: Derived, expected: Expected) -> Iterator[Trouble]:
    """Weights that some rank does not update exactly once, or at all where the reference does not train them.

    Nothing for a pair that leaves the optimizer out: nnScaler's plans never hold it.
    """
    updates, alone = _updates(plan), {_full_name(reference, name) for _, name in _updates(reference)}
    if not updates:
        if alone and not plan.format.startswith("nnscaler-"):
            text = "the reference updates weights and the parallel plan does not say that it does"
            yield Trouble("no-updates", False, text, plan.programs[0].ranks[0])
        return
    for rank, tensor in weights_of(plan, derived):
        name = tensor.logical or tensor.name
        times = updates[rank, tensor.name]
        if name in expected.gradients and times != 1:
            how = "is never updated" if times == 0 else f"is updated {times} times"
            yield Trouble("not-updated-once", True, f"the weight `{name}` on {{ranks}} {how}", rank)
    for rank, own in updates:
        name = _full_name(plan, own)
        if name not in expected.gradients and name not in alone:
            text = f"the weight `{name}` on {{ranks}} is updated and in the reference it is not trained"
            yield Trouble("updates-frozen-weight", False, text, rank)


def _updates(plan: Plan) -> Counter[tuple[int, str]]:
    """How often each rank updates each weight."""
    found: Counter[tuple[int, str]] = Counter()
    for program in plan.programs:
        for step in program.steps:
            for operator in plan.segments[step.segment].operators:
                if isinstance(operator, Update):
                    found.update((rank, name) for rank in program.ranks for name in operator.weights)
    return found


def _full_name(plan: Plan, name: str) -> str:
    tensor = plan.tensors.get(name)
    return name if tensor is None else tensor.logical or name


def judge_loss(
    world: World, plan: Plan, derived: Derived, expected: Expected, replicas: int, micro_batches: int
) -> Iterator[Trouble]:
    """What is wrong with the values that the plan returns."""
    if not plan.outputs:
        text = f"the plan returns nothing and the reference returns {len(expected.losses)} values"
        yield Trouble("other-outputs", False, text, plan.programs[0].ranks[0])
    everywhere = plan.format.startswith("nnscaler-")
    returned = False
    held: dict[tuple[str, int], list[Box]] = {}
    for rank, environment in derived.environments.items():
        names = [name for name in plan.outputs if name in environment]
        returned = returned or bool(names)
        if not names and everywhere and plan.outputs:
            yield Trouble("missing-output", True, f"{{ranks}} return `{plan.outputs[0]}`, which nothing gives them", rank)
        if names and len(names) != len(expected.losses):
            text = f"{{ranks}} return {len(names)} values where the reference returns {len(expected.losses)}"
            yield Trouble("other-outputs", False, text, rank)
            continue
        for name, term in zip(names, expected.losses, strict=False):
            value = returned_value(world, plan, derived, rank, name)
            value = None if value is None else world.values.without_constants(value)
            if value is not None and value.term == term and _one_slot(world, value, replicas, micro_batches):
                held.setdefault((name, term), []).append(value.box)
                declared = _declared_box(plan, name, rank)
                if declared is not None and declared != value.box:
                    text = f"`{name}`, which {{ranks}} return, holds another slice than the plan declares"
                    yield Trouble("output-of-another-slice", True, text, rank)
                continue
            yield _wrong_output(name, rank, term, value)
    for (name, term), boxes in held.items():
        if not _covers(boxes, world.terms.shape[term]):
            text = f"the pieces of `{name}` that the ranks return do not make up the whole"
            yield Trouble("uncovered-output", True, text, plan.programs[0].ranks[0])
    if plan.outputs and not returned:
        yield Trouble("missing-output", True, "nothing computes what the plan returns", plan.programs[0].ranks[0])


def _declared_box(plan: Plan, name: str, rank: int) -> Box | None:
    """The slice of a returned value that `rank` is declared to hold; None where nothing is declared."""
    tensor = plan.tensors.get(name)
    if tensor is None or (tensor.region is None and not tensor.placements):
        return None
    shards = {axis: own for axis, own in (tensor.placements or {}).items() if not isinstance(own, Partial)}
    try:
        return region(plan, replace(tensor, placements=shards, part=(0, 1)), rank)
    except Mismatch:
        return None


def returned_value(world: World, plan: Plan, derived: Derived, rank: int, name: str) -> Slot:
    """What `rank` returns as `name`, summed or averaged over the axes on which the plan declares it partial."""
    tensor = plan.tensors.get(name)
    placements = (tensor.placements if tensor is not None else None) or {}
    averaged = tuple(axis for axis, placement in placements.items() if placement == Partial("avg"))
    axes = (*(axis for axis, placement in placements.items() if placement == Partial("sum")), *averaged)
    value = derived.environments[rank][name]
    if not axes or value is None:
        return value
    group = Group(axes=axes)
    parts = [derived.environments.get(member, {}).get(name) for member in members_of(plan, group, rank)]
    whole = [part for part in parts if part is not None]
    share = Fraction(1, prod(plan.mesh.axis_size(axis) for axis in averaged))
    try:
        total = world.values.sum_over(-1, whole) if len(whole) == len(parts) else None
        if total is not None and spans_replicas(plan, group):
            total = over_replicas(world, total, plan.replication.count)
        return None if total is None else world.values.scaled(total, share)
    except (AmbiguousSumError, Mismatch):
        return None


def _wrong_output(name: str, rank: int, term: int, value: Slot) -> Trouble:
    subject = f"`{name}`, which {{ranks}} return,"
    if value is None:
        return Trouble("undecided-output", False, f"{subject} depends on something that is wrong or undecided before", rank)
    if value.term != term:
        return Trouble("other-output", False, f"{subject} is not the expression that the reference returns", rank)
    if value.fold is not None:
        return Trouble("incomplete-output", True, f"{subject} is {fold_text(value.fold)}", rank)
    pending = sorted(entry for leaf in value.leaves for entry in leaf.pending if not _whole(entry))
    if pending:
        lacks = scope_of(pending[0]._replace(one_replica=False, one_micro_batch=False))
        return Trouble("incomplete-output", True, f"{subject} is a partial sum, {lacks}", rank)
    return Trouble("scaled-output", True, f"{subject} is a multiple of what the reference returns", rank)


def _whole(entry: Pending) -> bool:
    return (entry.low, entry.high) == (0, entry.size)


def _one_slot(world: World, value: Value, replicas: int, micro_batches: int) -> bool:
    """Whether the value is exactly its slot's part, in all that adds up to it: of a sum its addend, of a mean its own mean."""
    if value.clean:
        return True
    if world.terms.slot[value.term] >= 0 or not value.leaves:
        return False
    scopes = {(entry.one_replica, entry.one_micro_batch) for leaf in value.leaves for entry in leaf.pending}
    return len(scopes) == 1 and all(_addend(world, leaf, replicas, micro_batches) for leaf in value.leaves)


def _addend(world: World, leaf: Leaf, replicas: int, micro_batches: int) -> bool:
    if len(leaf.pending) != 1:
        return False
    (entry,) = leaf.pending
    averages = world.terms.averages(entry.origin, entry.number)
    share = (replicas if entry.one_replica else 1) * (micro_batches if entry.one_micro_batch else 1)
    return _whole(entry) and (leaf.coefficient == 1 or (averages and leaf.coefficient == share))
