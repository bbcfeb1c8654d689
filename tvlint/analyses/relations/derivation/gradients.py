"""Gradients at the end of the step: summed over micro-batches, and reduced over ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from tvlint.analyses.dataflow.def_use import has
from tvlint.analyses.relations.defect import Trouble, at
from tvlint.analyses.relations.derivation.state import Derived, Slot
from tvlint.analyses.relations.transfer.apply import fold_text
from tvlint.analyses.relations.transfer.collectives import over_replicas
from tvlint.analyses.relations.transfer.context import Mismatch, World
from tvlint.analyses.relations.transfer.groups import members_of, spans_replicas
from tvlint.analyses.relations.transfer.relation import AmbiguousSumError, Value
from tvlint.ir.operators import Compute, ReduceGradients
from tvlint.ir.plan import Plan, Role, Tensor

Reducer: TypeAlias = "tuple[str, ReduceGradients]"
"""A reducer, and the segment that it stands in."""


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


def weights_of(plan: Plan, derived: Derived) -> list[tuple[int, Tensor]]:
    """Every weight that a rank uses, also in what is not understood, or reduces."""
    role = Role.WEIGHT
    weights = {name: tensor for name, tensor in plan.tensors.items() if tensor.role is role}
    seen = {(rank, name) for rank, name in derived.used if name in weights}
    for program in plan.programs:
        named: set[str] = set()
        for segment in {step.segment for step in program.steps}:
            for operator in plan.segments[segment].operators:
                if isinstance(operator, Compute):
                    named.update([name for name in operator.inputs if isinstance(name, str)])
                elif isinstance(operator, ReduceGradients):
                    named.update(operator.weights)
        seen.update((rank, name) for name in named if name in weights for rank in program.ranks)
    return [(rank, weights[name]) for rank, name in sorted(seen)]


def reduced(
    world: World,
    plan: Plan,
    derived: Derived,
    weights: Sequence[tuple[int, Tensor]],
    micro_batches: int,
    troubles: list[Trouble],
) -> dict[tuple[int, str], Slot]:
    """Each rank's gradient of each of its `weights` (by the weight's name) after accumulation and all reducers."""
    held: dict[tuple[int, str], Slot] = {}
    for rank, tensor in weights:
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
    """Run the reducers; those that do not meet leave nothing."""
    queues = reducers_of(plan)
    for members, operators in together(plan, queues):
        _reduce(world, plan, members, operators, held, troubles)
    for rank, queue in queues.items():
        for segment, operator in queue:
            members = members_of(plan, operator.group, rank)
            text = f"the gradient reducer of {{ranks}} over the ranks {list(members)} meets no such reducer on all of them"
            troubles.append(at(operator, segment, Trouble("reducers-disagree", True, text, rank)))
            held.update({(rank, name): None for name in operator.weights})


def reducers_of(plan: Plan) -> dict[int, deque[Reducer]]:
    """What every rank reduces, in order."""
    reducers = {
        name: [(name, operator) for operator in segment.operators if isinstance(operator, ReduceGradients)]
        for name, segment in plan.segments.items()
        if has(segment.operators, {ReduceGradients})
    }
    queues: dict[int, deque[Reducer]] = {}
    for program in plan.programs:
        found = [reducer for step in program.steps for reducer in reducers.get(step.segment, ())]
        queues.update({rank: deque(found) for rank in program.ranks})
    return queues


def together(plan: Plan, queues: dict[int, deque[Reducer]]) -> Iterator[tuple[tuple[int, ...], dict[int, Reducer]]]:
    """Members and what each of them runs, whenever it is the next reducer of all; what meets nothing is left in the queues."""
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
            yield key[0], {own: queues[own].popleft() for own in key[0]}
            moved = True


def _meeting(plan: Plan, operator: ReduceGradients, rank: int) -> tuple[tuple[int, ...], bool, str]:
    """What tells the reducers apart that a rank can meet."""
    group = operator.group
    return members_of(plan, group, rank), spans_replicas(plan, group), group.name


def _reduce(
    world: World,
    plan: Plan,
    members: tuple[int, ...],
    operators: Mapping[int, Reducer],
    held: dict[tuple[int, str], Slot],
    troubles: list[Trouble],
) -> None:
    """Reduce what the members hold; a gradient that a member never computes is zero there."""
    segment, first = operators[members[0]]
    tensors = plan.tensors
    full = {tuple(_known_as(tensors.get(name)) or name for name in own.weights) for _, own in operators.values()}
    kinds = {(own.reduce, own.divisor, own.scatter, own.replicated) for _, own in operators.values()}
    if len(full) > 1 or len(kinds) > 1:
        how = "reduce in different ways" if len(kinds) > 1 else "name different weights, or in another order"
        for member, (_, own) in operators.items():
            text = f"the gradient reducers of the ranks {list(members)} {how}"
            troubles.append(at(first, segment, Trouble("reducers-disagree", True, text, member)))
            held.update({(member, name): None for name in own.weights})
        return
    for named in zip(*(operators[member][1].weights for member in members), strict=True):
        slots = [*zip(members, named, strict=True)]
        values = [held[slot] for slot in slots if slot in held]
        if not values:
            continue
        name = named[0]
        known = [value for value in values if value is not None]
        total: Slot = None
        try:
            total = _total(world, plan, first, name, known, len(members)) if len(known) == len(values) else None
        except Mismatch as mismatch:
            text = f"the reducer of `{tensors[name].logical or name}` on {{ranks}} {mismatch.message}"
            for member in members:
                troubles.append(at(first, segment, Trouble(mismatch.name, mismatch.refutes, text, member)))
        held.update(dict.fromkeys(slots, total))


def _known_as(tensor: Tensor | None) -> str:
    return tensor.logical if tensor is not None else ""


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
