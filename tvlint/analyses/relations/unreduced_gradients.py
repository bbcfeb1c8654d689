"""Gradients of weights that are parts of a sum over ranks where nothing adds them up any more.

A rank steps a weight with a part of its gradient, or with what ranks make of their own data where its relation is not known,
while ranks along an axis hold the other parts. A plan that ends before the step may leave sums to the loop around it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.final_gradients import final_axes
from tvlint.analyses.gradients.lifecycle import weight_gradients
from tvlint.analyses.gradients.optimizer_updates import updated_weights
from tvlint.analyses.gradients.unreduced_moments import unshared
from tvlint.analyses.relations.derivation.localisation.sure import Parts, is_mixed, joined_before
from tvlint.analyses.relations.derivation.single_plan import Alone, sums_taken_for_complete
from tvlint.analyses.relations.derivation.state import Opaque, Slot
from tvlint.analyses.relations.findings import relations
from tvlint.analyses.relations.held_apart import Numbers, axes_apart, is_split
from tvlint.analyses.relations.matchers.parted import differ_by_indices
from tvlint.analyses.relations.shares import stepped_with_shares
from tvlint.ir.operators import Group, Operator, ReduceGradients
from tvlint.ir.placement import Partial
from tvlint.ir.plan import Plan, Program, Role, Tensor


@dataclass(frozen=True, slots=True)
class Unreduced:
    """At `operator`, `name`, the gradient of `weight`, is not summed over `axis`.

    `has` is `stepped` for a part with which the weight is stepped, `made` where that is made of `part`, which `operator` makes,
    `behind` where each rank steps its own piece and `part`, of
    which the gradient is made, is to be summed, `differs` for a value of unknown relation, `left` for a part that stays, and
    `open` where the loop around the plan may add it up.
    """

    weight: str
    name: str
    axis: str
    has: str
    operator: Operator
    ranks: tuple[int, ...]
    part: str = ""


def unreduced_gradients(facts: Facts) -> Iterator[Unreduced]:
    """Yield the gradients that are not reduced, each once, with all its ranks."""
    alone = relations(facts)
    if alone is None:
        return
    ranks: dict[tuple[str, str, str, str, str], tuple[Operator, set[int]]] = {}
    taken = sums_taken_for_complete(alone)
    written_out = [*_written_out(alone, taken)]
    by_names = _by_moments(facts.plan, alone, {unreduced.weight for unreduced in written_out})
    for unreduced in (*_stepped(alone, taken), *written_out, *_left(facts, alone, taken), *by_names):
        key = unreduced.weight, unreduced.name, unreduced.axis, unreduced.has, unreduced.part
        ranks.setdefault(key, (unreduced.operator, set()))[1].update(unreduced.ranks)
    for (weight, name, axis, has, part), (operator, members) in ranks.items():
        yield Unreduced(weight, name, axis, has, operator, facts.fold.everywhere(tuple(sorted(members))), part)


def _stepped(alone: Alone, taken: AbstractSet[tuple[int, int]]) -> Iterator[Unreduced]:
    """Yield what weights, or copies of them, are stepped with; what is reduced after the step is another mistake."""
    programs = [(program, set(_reduced(alone.plan, program))) for program in alone.plan.programs]
    reduced = {rank: found for program, found in programs for rank in program.ranks}
    held: dict[str, dict[int, tuple[Slot, Opaque | None]]] = {}
    for step in alone.derived.steps:
        held.setdefault(step.weight, {})[step.rank] = step.gradient, step.opaque
    parts: dict[str, Parts] = {}
    numbers: dict[str, Numbers] = {}
    gradients = weight_gradients(alone.plan)
    for weight, of_rank in held.items():
        parts[weight] = Parts(alone.plan, {rank: gradient for rank, (gradient, _) in of_rank.items()}, of_rank)
        numbers[weight] = Numbers(alone.plan, {rank: opaque for rank, (_, opaque) in of_rank.items()})
    for step in alone.derived.steps:
        gradient, opaque = held[step.weight][step.rank]
        partial = ((axis, "stepped") for axis in _partial_axes(alone, taken, step.rank, gradient, parts[step.weight]))
        differing = [*axes_apart(alone.plan, step.rank, opaque, numbers[step.weight])]
        differing += _apart_by_indices(alone, step.rank, gradient, parts[step.weight])
        apart = ((axis, "differs") for axis in differing if not is_split(alone.plan, step.weight, axis))
        for axis, has in dict((*apart, *partial)).items():
            if (step.weight, axis) in reduced[step.rank]:
                continue
            found = Unreduced(step.weight, step.name, axis, has, step.operator, (step.rank,))
            if has == "stepped" and is_split(alone.plan, step.weight, axis):
                part = _started_as(alone, step.rank, gradient)
                yield replace(found, has="behind", part=part) if part not in ("", step.name) else found
            elif has == "stepped" and (start := _start_of(alone, step.rank, gradient, gradients)) is not None:
                yield replace(found, has="made", part=start[0], operator=start[1])
            else:
                yield found
    for step, axis in stepped_with_shares(alone):
        if (step.weight, axis) not in reduced[step.rank]:
            yield Unreduced(step.weight, step.name, axis, "stepped", step.operator, (step.rank,))


def _started_as(alone: Alone, rank: int, value: Slot) -> str:
    """Return the name of the part of a sum that the value on a rank is made of; empty where there is none."""
    started = {entry.origin for leaf in value.leaves for entry in leaf.pending} if value is not None else set()
    given = alone.derived.environments[rank].items()
    name = next((name for name, each in given if each is not None and each.term in started), "")
    gradients = alone.derived.gradients.get(rank, {}).items()
    weight = next((weight for weight, each in gradients if each is not None and each.term in started), "")
    owners = weight_gradients(alone.plan).items() if weight and not name else ()
    return name or next((name for name, owner in owners if owner == weight), "")


def _start_of(alone: Alone, rank: int, value: Slot, gradients: Container[str]) -> tuple[str, Operator] | None:
    """Return the first tensor that carried a part of the sum that the value on a rank is made of, and what made it; None where
    that is a gradient of a weight, which is to be reduced itself.
    """
    started = {entry.origin for leaf in value.leaves for entry in leaf.pending} if value is not None else set()
    carriers = alone.derived.carriers.get(rank, {})
    first = min(started & carriers.keys(), default=-1)
    return None if first < 0 or carriers[first][0] in gradients else carriers[first]


def _apart_by_indices(alone: Alone, rank: int, value: Slot, parts: Parts) -> Iterator[str]:
    """Yield the axes along which other ranks have the same pieces of a gradient that is made of other experts, say."""
    if value is None or not value.clean:
        return
    for axis in (axis.name for axis in alone.plan.mesh.axes if axis.size > 1):
        others = [other for other in parts.beside(rank, axis) if other is not None and other.clean and other.box == value.box]
        terms = {other.term for other in others} - {value.term}
        if any(differ_by_indices(alone.world.terms, value.term, term) for term in terms):
            yield axis


def _written_out(alone: Alone, taken: AbstractSet[tuple[int, int]]) -> Iterator[Unreduced]:
    """Yield the gradients of which a weight is computed anew where no step of it is known, and becomes a part of a sum."""
    plan, derived = alone.plan, alone.derived
    known = {step.weight for step in derived.steps} | {name for name, tensor in plan.tensors.items() if _is_part(tensor)}
    weights = {name for held in derived.renewed.values() for name in held if plan.tensors[name].role is Role.WEIGHT} - known
    for weight in sorted(weights):
        held = {rank: of_rank.get(weight) for rank, of_rank in derived.renewed.items()}
        parts = Parts(plan, held, held)
        for rank, value in held.items():
            made = alone.operators.makers_on(rank).get(weight)
            name = _started_as(alone, rank, value)
            if made is not None and name:
                axes = _pending_axes(alone, taken, rank, value, parts)
                yield from (Unreduced(weight, name, axis, "stepped", made[1], (rank,)) for axis in axes)


def _is_part(tensor: Tensor) -> bool:
    """Return whether a tensor is declared to be a part of a sum."""
    return any(isinstance(placement, Partial) for placement in (tensor.placements or {}).values())


def _by_moments(plan: Plan, alone: Alone, written_out: AbstractSet[str]) -> Iterator[Unreduced]:
    """Yield the gradients of which a weight is computed anew where no step of it is known, by names alone."""
    known = {step.weight for step in alone.derived.steps} | written_out
    for found in unshared(plan, known):
        yield Unreduced(found.weight, found.name, found.axis, "differs", found.operator, found.ranks)


def _reduced(plan: Plan, program: Program) -> Iterator[tuple[str, str]]:
    """Yield the weights whose gradients the program reduces at any time, with the axes."""
    for _, _, each_operator in plan.run_by(program):
        group = plan.declared(each_operator.group) if isinstance(each_operator, ReduceGradients) else None
        if isinstance(each_operator, ReduceGradients) and group is not None:
            along = {axis.name for axis in plan.mesh.axes if not group.ranks or _runs_along(plan, group, axis.name)}
            axes = {*(group.axes or along), *([plan.replication.axis] if each_operator.replicated else [])}
            yield from ((weight, axis) for weight in each_operator.weights for axis in axes)


def _runs_along(plan: Plan, group: Group, axis: str) -> bool:
    return set(plan.mesh.along(group.ranks[0], (axis,))) <= set(group.ranks) if group.ranks[0] < plan.mesh.size else False


def _left(facts: Facts, alone: Alone, taken: AbstractSet[tuple[int, int]]) -> Iterator[Unreduced]:
    """Yield the parts that the plan leaves of gradients of weights that it does not step."""
    plan, done = alone.plan, updated_weights(alone.plan) | {step.weight for step in alone.derived.steps}
    final = final_axes(facts)
    weights = {name for gradients in alone.derived.gradients.values() for name in gradients} - done
    for weight in sorted(weights):
        gradients = {rank: value.get(weight) for rank, value in alone.derived.gradients.items()}
        parts = Parts(plan, gradients, gradients)
        for rank, gradient in gradients.items():
            for axis in _partial_axes(alone, taken, rank, gradient, parts):
                name, operator = _last(plan, weight, rank)
                declared = plan.tensors[name].placements if name in plan.tensors else None
                if operator is not None and not (name in plan.outputs and declared is not None):
                    has = "left" if axis in final or name in plan.outputs else "open"
                    yield Unreduced(weight, name, axis, has, operator, (rank,))


def _last(plan: Plan, weight: str, rank: int) -> tuple[str, Operator | None]:
    """Return the gradient of the weight that a rank makes last and nothing takes further, and the operator that makes it."""
    operators = [*plan.run_on(rank)]
    names = {tensor.name for tensor in plan.tensors.values() if tensor.gradient_of == weight} | {plan.tensors[weight].gradient}
    names -= {name for operator in operators for name in reads(operator) if name not in writes(operator)}
    found = [(name, operator) for operator in operators for name in writes(operator) if name in names]
    return found[-1] if found else ("", None)


def _partial_axes(alone: Alone, taken: AbstractSet[tuple[int, int]], rank: int, value: Slot, parts: Parts) -> list[str]:
    """Return the axes over which what a rank holds is a part of a sum, where others hold other parts, or what is unknown.

    A part of a sum that an operator took for complete before (`taken`), or added something else to, is that mistake.
    """
    if value is not None and is_mixed(value) and joined_before(alone.derived, alone.world.terms, value) is not None:
        return []
    return _pending_axes(alone, taken, rank, value, parts)


def _pending_axes(alone: Alone, taken: AbstractSet[tuple[int, int]], rank: int, value: Slot, parts: Parts) -> list[str]:
    """Return the axes over which parts of a value have not been summed, as `_partial_axes` does."""
    plan = alone.plan
    pending = {(entry.origin, entry.number) for leaf in value.leaves for entry in leaf.pending} if value is not None else set()
    if value is None or not pending or not pending.isdisjoint(taken):
        return []
    found = [plan.replication.axis] if any(entry.one_replica for leaf in value.leaves for entry in leaf.pending) else []
    unknown = []
    for axis in (axis.name for axis in plan.mesh.axes if axis.size > 1):
        if parts.is_part_over(rank, axis):
            found.append(axis)
        elif any(True for _ in parts.beside(rank, axis)) and all(other is None for other in parts.beside(rank, axis)):
            unknown.append(axis)
    return found or unknown
