"""Pair two plans: whether they can be compared, and how their inputs correspond."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from tvlint.analyses.dataflow.def_use import of_kinds
from tvlint.analyses.dataflow.step_scope import micro_batches_of
from tvlint.analyses.gradients.lifecycle import weight_gradients
from tvlint.analyses.relations.defect import Defect
from tvlint.analyses.relations.derivation.trusted_inputs import Inputs, inputs_of, slot_dims, told_in_two_ways
from tvlint.analyses.relations.terms.terms import Telling
from tvlint.analyses.relations.transfer.groups import not_of_communicator, resolved
from tvlint.ir.operators import Communicate, Receive, ReduceGradients, Send, Update
from tvlint.ir.placement import Invariant, Replicate
from tvlint.ir.plan import Plan, Role

_TALKING = frozenset({Communicate, ReduceGradients, Send, Receive})
_TRAINING = frozenset({ReduceGradients, Update})


Progress: TypeAlias = Callable[[str, float], None]
"""Takes what is being done, and which share of all is done (0 to 1)."""


@dataclass(frozen=True, slots=True)
class Case:
    """Two plans that can be compared, how their inputs correspond, and how the pair is derived."""

    parallel: Plan
    """The plan that is derived; it may be one replica of the one that is `written`."""
    written: Plan
    reference: Plan
    inputs: Inputs
    """The parallel plan's inputs, numbered like the reference's."""
    reference_inputs: Inputs
    slots: tuple[int, ...]
    """The dimension of each input that slots cut; -1 for none."""
    total_slots: int
    micro_batches: int
    assume: frozenset[str]
    folded_axis: str = ""
    """The axis along which `written` writes out replicas of which `parallel` is one; empty where none is folded."""
    telling: Telling = Telling.AS_WRITTEN
    """How terms tell what is computed."""


def first_rank(plan: Plan) -> int:
    """A rank of the plan, for what is wrong with all of it."""
    return plan.programs[0].ranks[0] if plan.programs and plan.programs[0].ranks else 0


def pair(parallel: Plan, reference: Plan, assume: frozenset[str] = frozenset()) -> Case | Defect:
    """Return the pair as a case; or the gap that keeps the plans from being compared.

    A case has two well-formed plans, a reference of one rank and one micro-batch, inputs that correspond one to one, and a
    batch of as many local batches as the parallel plan has replicas and micro-batches.
    """
    gap = _incomparable(parallel, reference)
    if gap is not None:
        return gap
    rank, outer = first_rank(parallel), inputs_of(reference)
    inner = _matched(inputs_of(parallel), outer)
    if set(inner.names) & set(outer.names) and set(inner.names) != set(outer.names):
        text = f"the plans share some names of inputs and not others: {', '.join(outer.names)} and {', '.join(inner.names)}"
        return Defect("other-inputs", False, text, rank)
    slots = slot_dims(outer, inner)
    if isinstance(slots, str):
        return Defect("other-inputs", False, slots, rank)
    count, dims = slots
    micro_batches, replicas = micro_batches_of(parallel), parallel.replication.count
    if parallel.micro_batches != micro_batches:
        text = f"the plan says {parallel.micro_batches} micro-batches and its programs run {micro_batches}"
        return Defect("other-batch", False, text, rank)
    if count != micro_batches * replicas:
        text = f"the reference's batch is {count} local batches, and the plan runs {replicas} replicas "
        return Defect("other-batch", False, f"{text}of {micro_batches} micro-batches", rank)
    return Case(parallel, parallel, reference, inner, outer, dims, count, micro_batches, assume)


def _incomparable(parallel: Plan, reference: Plan) -> Defect | None:
    """Return why the plans cannot be compared at all; None where they can."""
    ranks = [rank for program in reference.programs for rank in program.ranks]
    one = max(reference.replication.count, reference.micro_batches, micro_batches_of(reference)) == 1
    if len(ranks) != 1 or not one:
        text = "the reference is not a single-device plan of one micro-batch"
        return Defect("parallel-reference", False, text, first_rank(parallel))
    if not any(program.ranks for program in parallel.programs):
        return Defect("empty-plan", False, "the parallel plan has no programs", 0)
    for plan in (parallel, reference):
        if not _well_formed(plan):
            text = f"`{plan.path}` has a rank in two programs or none of the mesh, a program of no rank, "
            text += "or a step that does not fit its segment"
            return Defect("malformed-plan", False, text, first_rank(plan))
        text = _unclear(plan)
        if text:
            return Defect("malformed-plan", False, f"`{plan.path}` {text}", first_rank(plan))
        name = told_in_two_ways(plan)
        if name:
            text = f"`{plan.path}` declares slices of the input `{name}` with wholes of different shapes or types"
            return Defect("other-inputs", False, text, first_rank(plan))
    if not _replicas_fit(parallel):
        return Defect("odd-replicas", False, "the folded replicas are not those of one axis of the mesh", first_rank(parallel))
    places = {plan.outputs.index(plan.loss) for plan in (parallel, reference) if plan.loss in plan.outputs}
    if len(places) > 1:
        text = f"the loss of the plan is `{parallel.loss}`, and that of the reference, `{reference.loss}`, is another result"
        return Defect("other-loss", False, text, first_rank(parallel))
    if _gradients_returned(parallel) != _gradients_returned(reference):
        text = "the plans return the gradients of different weights, which are compared as gradients only"
        return Defect("other-outputs", False, text, first_rank(parallel))
    name = _cut_by_replicas(parallel)
    if name:
        axis = parallel.replication.axis
        text = f"`{name}` lies otherwise in every replica along `{axis}`, of which one stands for all: write out all ranks"
        return Defect("odd-replicas", False, text, first_rank(parallel))
    return None


def _gradients_returned(plan: Plan) -> list[str]:
    """The full names of the weights whose gradients the plan returns, in order."""
    owner, tensors = weight_gradients(plan), plan.tensors
    return [tensors[owner[name]].logical or owner[name] for name in plan.outputs if name in owner]


def _well_formed(plan: Plan) -> bool:
    """Return whether every rank has one program, every program a rank, and every step as many values as its segment."""
    ranks = [rank for program in plan.programs for rank in program.ranks]
    if len(set(ranks)) != len(ranks) or any(not 0 <= rank < plan.mesh.size for rank in ranks):
        return False
    if not all(program.ranks for program in plan.programs):
        return False
    for program in plan.programs:
        for step in program.steps:
            segment = plan.segments.get(step.segment)
            if segment is None or len(segment.inputs) != len(step.inputs if step.inputs is not None else segment.inputs):
                return False
            if len(segment.outputs) != len(step.outputs if step.outputs is not None else segment.outputs):
                return False
    return True


def _unclear(plan: Plan) -> str:
    """Return what the plan says that leaves open what it means; empty where nothing is."""
    owners: dict[str, str] = {}
    for tensor in plan.tensors.values():
        for name, of in ((tensor.gradient, tensor.name), (tensor.name, tensor.gradient_of)):
            weight, gradient = plan.tensors.get(of), plan.tensors.get(name)
            if not name or weight is None or weight.role is not Role.WEIGHT:
                continue
            if gradient is not None and gradient.role is not Role.GRADIENT:
                return f"declares `{name}` as the gradient of `{of}` and as {gradient.role.value}"
            if owners.setdefault(name, of) != of:
                return f"declares `{name}` as the gradient of `{owners[name]}` and of `{of}`"
    given = {name for program in plan.programs for step in program.steps for name in step.outputs or ()}
    given.update(name for segment in plan.segments.values() for name in segment.outputs)
    for name in plan.outputs:
        declared = plan.tensors.get(name)
        if name not in given and (declared is None or declared.role is Role.ACTIVATION):
            return f"returns `{name}`, which no run gives"
    axes = {axis.name for axis in plan.mesh.axes}
    for name in _axes_named(plan):
        if name not in axes:
            return f"communicates along `{name}`, which is neither an axis of its mesh nor one of its communicators"
    name = not_of_communicator(plan)
    if name:
        return f"communicates by `{name}` with other ranks than that communicator has"
    for segment in plan.segments.values():
        for _, own in of_kinds(segment.operators, _TRAINING):
            for name in own.weights if isinstance(own, ReduceGradients | Update) else ():
                if name not in plan.tensors or plan.tensors[name].role is not Role.WEIGHT:
                    return f"reduces or updates `{name}`, which is no weight"
                if isinstance(own, ReduceGradients) and own.weights.count(name) > 1:
                    return f"names `{name}` twice in one gradient reducer"
    return ""


def _axes_named(plan: Plan) -> Iterator[str]:
    """The axes along which the plan communicates, and the names of groups that say nothing but their name."""
    for segment in plan.segments.values():
        for _, own in of_kinds(segment.operators, _TALKING):
            if isinstance(own, Communicate | ReduceGradients):
                group = resolved(plan, own.group)
                yield from group.axes or ((group.name,) if group.name and not group.ranks else ())
            elif isinstance(own, Send | Receive) and own.peer.rank is None:
                yield own.peer.axis


def _replicas_fit(plan: Plan) -> bool:
    """Return whether the programs are those of the first coordinate of the axis that is folded, and the replicas all the
    others.
    """
    replication = plan.replication
    if replication.count <= 1:
        return True
    names = [axis.name for axis in plan.mesh.axes]
    if replication.axis not in names or plan.mesh.axis_size(replication.axis) != replication.count:
        return False
    inner = plan.mesh.axes[names.index(replication.axis) + 1 :]
    ranks = [rank for program in plan.programs for rank in program.ranks]
    first = all(0 <= rank < plan.mesh.size and plan.mesh.coordinates(rank)[replication.axis] == 0 for rank in ranks)
    return first and replication.stride == prod(axis.size for axis in inner)


def _cut_by_replicas(plan: Plan) -> str:
    """A weight, buffer or input of which the folded replicas are declared to hold different pieces; empty where none is."""
    replication = plan.replication
    for tensor in plan.tensors.values() if replication.count > 1 else ():
        own = (tensor.placements or {}).get(replication.axis, Replicate())
        if tensor.role in (Role.WEIGHT, Role.BUFFER, Role.STATE, Role.INPUT) and not isinstance(own, Replicate | Invariant):
            return tensor.name
    return ""


def _matched(inner: Inputs, outer: Inputs) -> Inputs:
    """The parallel plan's inputs, numbered like the reference's: by name where the names are the same, else by order."""
    if set(inner.names) != set(outer.names):
        return inner
    order = {name: i for i, name in enumerate(outer.names)}
    number = {name: order[inner.names[i]] for name, i in inner.number.items()}
    places = [inner.names.index(name) for name in outer.names]
    return Inputs(outer.names, tuple(inner.shapes[i] for i in places), tuple(inner.dtypes[i] for i in places), number)
