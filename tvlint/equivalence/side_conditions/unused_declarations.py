"""What a plan states and nothing of it uses: declarations, segments, ranks, communicators, inputs of segments."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import TypeAlias

from tvlint.analyses.dataflow.def_use import names_in, names_inside, writes
from tvlint.analyses.gradients.roots import made
from tvlint.analyses.relations.defect import Defect
from tvlint.analyses.relations.transfer.groups import communicator_of
from tvlint.ir.plan import GIVEN, Plan, Role, Step, Tensor

Key: TypeAlias = tuple[Role, str]
"""The role and the full name of a tensor, which are the same in both plans."""


def check_unused(parallel: Plan, reference: Plan) -> Iterator[Defect]:
    """Yield what one of the plans states and nothing of it uses; what both declare and neither uses is alike."""
    yield from _idle(parallel)
    yield from _unread(parallel)
    first = parallel.programs[0].ranks[0]
    here, there = unused_tensors(parallel), unused_tensors(reference)
    for key, tensor in here.items():
        if key not in there:
            text = f"the plan declares the {tensor.role.value} `{tensor.name}`, which nothing names"
            yield Defect("unused-declaration", False, text, first, source=tensor.source)
    for key, tensor in there.items():
        if key not in here:
            text = f"the reference declares the {tensor.role.value} `{tensor.name}`, which nothing in it names"
            yield Defect("unused-declaration", False, text, first, source=tensor.source)
    for defect in (*_idle(reference), *_unread(reference)):
        yield Defect(defect.name, False, f"in the reference, {defect.message}", first, source=defect.source)


def unused_tensors(plan: Plan) -> dict[Key, Tensor]:
    """Return the tensors that the plan declares and that no operator, run, returned value or named tensor names."""
    named = {*plan.outputs, *names_in(plan)}
    named |= {name for tensor in plan.tensors.values() if tensor.name in named for name in (tensor.logical, tensor.gradient)}
    idle = (
        tensor
        for tensor in plan.tensors.values()
        if tensor.name not in named and (tensor.gradient_of or tensor.name) not in named
    )
    return {(tensor.role, tensor.logical or tensor.name): tensor for tensor in idle}


def _idle(plan: Plan) -> Iterator[Defect]:
    """Yield segments that no program runs, ranks of the mesh that run none, and communicators that nothing names."""
    first = plan.programs[0].ranks[0]
    run = {step.segment for step in plan.steps()}
    for name in plan.segments.keys() - run:
        yield Defect("unused-segment", False, f"no program runs the segment `{name}`", first, name)
    axis = plan.replication.axis if plan.replication.count > 1 else ""
    ranks = {rank for program in plan.programs for rank in program.ranks}
    for rank in range(plan.mesh.size) if len(ranks) * plan.replication.count < plan.mesh.size else ():
        if rank not in ranks and (not axis or plan.mesh.coordinates(rank)[axis] == 0):
            yield Defect("idle-rank", False, "no program runs on {ranks} of the mesh", rank)
    used = {communicator_of(operator)[0] for operator in plan.operators()}
    for group in plan.communicators:
        if group.name and group.name not in used:
            yield Defect("unused-communicator", False, f"nothing communicates by `{group.name}`", first)


def _unread(plan: Plan) -> Iterator[Defect]:
    """Yield inputs of segments that nothing has given to a run and that no operator in the segment names."""
    given = made(plan)
    unread: dict[str, list[tuple[int, str]]] = {}
    for name, segment in plan.segments.items():
        inside = names_inside(segment)
        unread[name] = [(position, each_name) for position, each_name in enumerate(segment.inputs) if each_name not in inside]
    for program in plan.programs if any(unread.values()) else ():
        made_here = [_made_by(plan, step) for step in program.steps]
        ever, before = set().union(*made_here), set[str]()
        for step, results in zip(program.steps, made_here, strict=True):
            outside = step.outside(plan.segments[step.segment])[0]
            for position, each_name in unread[step.segment]:
                outer = outside[position]
                if outer in before or _is_there(plan, outer, given) or (outer in given and outer not in ever):
                    continue
                when = "before anything gives it, and nothing" if outer in ever else "and nothing gives it or"
                text = f"`{each_name}` comes into `{step.segment}`, {when} reads it there"
                yield Defect("unused-input", False, text, program.ranks[0], step.segment, source=step.source)
            before |= results


def _made_by(plan: Plan, step: Step) -> set[str]:
    """Return the names that a run gives to something."""
    segment = plan.segments[step.segment]
    return {name for operator in segment.operators for name in writes(operator)} | set(step.outside(segment)[1])


def _is_there(plan: Plan, name: str, given: Set[str]) -> bool:
    """Return whether a tensor is there before the plan runs, or is the gradient of a weight, to which runs add."""
    tensor = plan.tensors.get(name)
    if tensor is None:
        return False
    weight = plan.tensors.get(tensor.gradient_of)
    return tensor.role in GIVEN or (weight is not None and weight.role is Role.WEIGHT and name in given)
