"""Derive the relations of one plan on its own: from declared placements and the operator table, with no reference.

What is given is trusted where the plan says how it lies: weights, buffers and inputs, and states and gradients that nothing
makes. Whatever the plan leaves open is unknown, and nothing is said of what follows from it. Behind a mistake the derivation
goes on with what the operator wants, a complete value in the place of a part of it, so that independent mistakes are all found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod

from tvlint.analyses.dataflow.def_use import writes
from tvlint.analyses.dataflow.step_scope import micro_batches_of
from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.derive import derive
from tvlint.analyses.relations.derivation.equal_replicas import equal_replicas, first_replica
from tvlint.analyses.relations.derivation.state import Derived
from tvlint.analyses.relations.derivation.sure import lasting_scaling
from tvlint.analyses.relations.derivation.trusted_inputs import inputs_of, told_in_two_ways
from tvlint.analyses.relations.derivation.well_formed import cut_by_replicas, do_replicas_fit, is_well_formed, unclear
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer.context import World
from tvlint.analyses.relations.transfer.relation import Value, Values
from tvlint.ir.operators import Operator
from tvlint.ir.placement import Shard
from tvlint.ir.plan import Plan, Role

_MOST_RUNS = 20_000
"""Plans whose ranks run more operators in one micro-batch are left to the proof."""

_MOST_WRITTEN_OUT = 50_000
"""So are plans that write out most operators for each rank, from this number on: reading them costs more than deriving."""


@dataclass(frozen=True, slots=True)
class Alone:
    """The relations of `plan`, which is one replica of a plan where all are equal."""

    plan: Plan
    world: World
    derived: Derived
    bare: dict[int, tuple[Fraction, int]] = field(default_factory=dict, compare=False)
    """What values are multiples of by constants, as far as it was asked for."""


def derive_alone(plan: Plan) -> Alone | None:
    """Return the relations of a plan to the values that it computes itself; None where it is not clear what it runs."""
    if plan.replication.count > 1 and _is_large(plan):
        return None
    if not plan.programs or not is_well_formed(plan) or unclear(plan) or told_in_two_ways(plan):
        return None
    if not do_replicas_fit(plan) or cut_by_replicas(plan):
        return None
    inputs, slots = inputs_of(plan), None
    found = equal_replicas(plan, inputs)
    if found is not None:
        axis, slots, tensors = found
        plan = first_replica(plan, axis, tensors)
        inputs = inputs_of(plan)
    if _is_large(plan):
        return None
    micro_batches, replicas = micro_batches_of(plan), plan.replication.count
    terms, many = Terms(), micro_batches * replicas > 1
    world = World(terms, Values(terms), 1, replicas > 1, micro_batches > 1)
    slots = slots or tuple(0 if many and shape else -1 for shape in inputs.shapes)
    derived = derive(world, plan, inputs, slots, micro_batches * replicas, losses=None, dtypes={}, alone=True)
    return Alone(plan, world, derived)


def _is_large(plan: Plan) -> bool:
    """Return whether the ranks run more operators in one micro-batch than are derived."""
    sizes = {name: len(segment.operators) for name, segment in plan.segments.items()}
    runs = sum(
        len(program.ranks) * sizes.get(name, 0)
        for program in plan.programs
        for name in {step.segment for step in program.steps}
    )
    return runs > max(_MOST_RUNS, min(_MOST_WRITTEN_OUT, 2 * sum(sizes.values())))


def sure_defects(alone: Alone) -> Iterator[Defect]:
    """Yield what is wrong with the plan whatever its reference is."""
    plan, derived = alone.plan, alone.derived
    noted = (*derived.defects, *derived.reductions, *_incomplete_outputs(alone), *_multiplied_outputs(alone))
    found = [each_defect for each_defect in noted if each_defect.refutes and each_defect.place is not None]
    batch = _batch_axes(plan)
    for defect in found:
        if defect.name != "split-dimension" or not _is_of_the_batch(plan, batch, defect, found):
            yield defect


def _incomplete_outputs(alone: Alone) -> Iterator[Defect]:
    """Yield the outputs that are parts of a sum over ranks that share their batch, where nothing says that they are.

    What ranks with batches of their own have may be a part of a loss, which the loop around the plan adds up.
    """
    plan = alone.plan
    sized = [axis.name for axis in plan.mesh.axes if axis.size > 1]
    inputs = [tensor.placements or {} for tensor in plan.tensors.values() if tensor.role is Role.INPUT]
    shared = [axis for axis in sized if not any(isinstance(each_input.get(axis), Shard) for each_input in inputs)]
    for name in plan.outputs:
        tensor = plan.tensors.get(name)
        if tensor is None or tensor.placements is not None or tensor.part != (0, 1) or prod(tensor.shape) == 1:
            continue
        if tensor.gradient_of or tensor.role is Role.GRADIENT:
            continue
        held = {rank: value.get(name) for rank, value in alone.derived.environments.items()}
        for rank, value in held.items():
            for axis in shared if value is not None and value.leaves else ():
                others = [held.get(other) for other in plan.mesh.along(rank, (axis,)) if other != rank]
                if value is not None and all(
                    each_value is not None and is_other_part(value, each_value) for each_value in others
                ):
                    text = f"returns `{name}`, which on {{ranks}} is a part of a sum over `{axis}`"
                    defect = Defect("missing-allreduce", True, text, rank)
                    yield from (at(operator, segment, defect) for segment, operator in _maker(plan, name, rank))
                    break


def _multiplied_outputs(alone: Alone) -> Iterator[Defect]:
    """Yield the collectives that make multiples of values which outputs still are."""
    plan, derived, terms = alone.plan, alone.derived, alone.world.terms
    for rank, held in derived.environments.items():
        outputs = [held.get(name) for name in plan.outputs if name not in plan.losses]
        values = [value for value in outputs if value is not None and prod(terms.shape[value.term]) != 1]
        for found in {id(scaling): scaling for value in values if (scaling := lasting_scaling(derived, terms, value))}.values():
            at_rank = Defect(found.rule, True, found.message, rank, cause=("scaling", id(found.operator)))
            segment = next(
                name for name, segment in plan.segments.items() if any(each is found.operator for each in segment.operators)
            )
            yield at(found.operator, segment, at_rank)


def is_other_part(one: Value, other: Value) -> bool:
    """Return whether both are parts of one sum, of other ranges."""
    here, there = ({leaf.pending for leaf in value.leaves} for value in (one, other))
    return one.term == other.term and bool(there) and here.isdisjoint(there)


def _maker(plan: Plan, name: str, rank: int) -> list[tuple[str, Operator]]:
    """Return the last operator that makes a tensor on a rank, and its segment."""
    steps = (step.segment for program in plan.programs if rank in program.ranks for step in program.steps)
    return [
        (segment, operator) for segment in steps for operator in plan.segments[segment].operators if name in writes(operator)
    ][-1:]


def _batch_axes(plan: Plan) -> frozenset[str]:
    """Return the axes that split the first dimension of an input, whose ranks may each have a batch of their own."""
    inputs = (tensor for tensor in plan.tensors.values() if tensor.role is Role.INPUT)
    placed = (entry for tensor in inputs for entry in (tensor.placements or {}).items())
    return frozenset(axis for axis, placement in placed if isinstance(placement, Shard) and placement.dim == 0)


def _is_of_the_batch(plan: Plan, batch: frozenset[str], defect: Defect, found: list[Defect]) -> bool:
    """Return whether the dimension that is split may be that of the batch: ranks along one of its axes have other parts."""
    at = plan.mesh.coordinates(defect.rank)
    for other in found:
        if other.name == defect.name and other.place is defect.place and other.message != defect.message:
            coordinates = plan.mesh.coordinates(other.rank)
            if any(coordinates[axis] != at[axis] for axis in batch) and all(
                coordinates[axis] == at[axis] for axis in at.keys() - batch
            ):
                return True
    return False
