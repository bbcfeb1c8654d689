"""Omissions of plan text that its reader infers again: segments and tensors that operators imply."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.inference.segments import implicit_segments
from tvlint.analyses.inference.shapes_and_gradients import derive_tensors, link_gradients
from tvlint.ir.operators import Backward, Communicate, Compute, Operator
from tvlint.ir.plan import Plan, Program, Role, Step

PRODUCED = (Role.ACTIVATION, Role.GRADIENT)
_EVERYWHERE = (Role.WEIGHT, Role.BUFFER, Role.STATE)


def implied_segments(plan: Plan) -> frozenset[str]:
    """Return the segments that need no line of their own, because the operators in the programs imply them."""
    uses: dict[str, int] = {}
    for step in plan.steps():
        uses[step.segment] = uses.get(step.segment, 0) + 1
    plain = {
        name for name, segment in plan.segments.items()
        if uses.get(name) == 1 and segment.pipeline_stage < 0 and not segment.mirror and not segment.checkpointed
        and segment.operators and not any(other.mirror == name for other in plan.segments.values())
    }  # fmt: skip
    everywhere = frozenset(tensor.name for tensor in plan.tensors.values() if tensor.role in _EVERYWHERE)
    accumulated = frozenset(tensor.gradient for tensor in plan.tensors.values() if tensor.role is Role.WEIGHT)
    taken = set(plan.segments) - plain
    for program in plan.programs:
        for run, micro_batch in _runs(program, plain):
            operators = [operator for step in run for operator in plan.segments[step.segment].operators]
            parts = list(implicit_segments(operators, everywhere, accumulated, micro_batch, many=plan.micro_batches > 1))
            if len(parts) != len(run):
                return frozenset()
            for step, part in zip(run, parts, strict=True):
                segment = plan.segments[step.segment]
                name = _free(part.phase.value, taken)
                taken.add(name)
                same = (segment.phase, segment.operators, segment.inputs, segment.outputs) == (
                    part.phase, part.operators, part.inputs, part.outputs
                )  # fmt: skip
                if not same or name != segment.name or step != Step(name, part.micro_batch):
                    return frozenset()
    return frozenset(plain)


def _free(name: str, taken: set[str]) -> str:
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name}.{number}"
    return candidate


def _runs(program: Program, plain: set[str]) -> Iterator[tuple[list[Step], int]]:
    """Yield the stretches of steps that are written as bare operators, with the micro-batch in force."""
    run: list[Step] = []
    micro_batch = 0
    for step in program.steps:
        number = step.micro_batch if step.micro_batch >= 0 else micro_batch
        if run and (step.segment not in plain or number != micro_batch):
            yield run, micro_batch
            run = []
        if step.segment in plain:
            micro_batch = number
            run.append(step)
    if run:
        yield run, micro_batch


def made_from_gradients(plan: Plan, operators: list[Operator]) -> set[str]:
    """Names that a reader takes for gradients unless the plan says otherwise."""
    found: set[str] = set()
    for operator in operators:
        if isinstance(operator, Backward):
            found.update((*operator.inputs, *operator.outputs))
        elif isinstance(operator, Compute | Communicate):
            inputs = (plan.tensors.get(name) for name in reads(operator))
            if any(tensor is not None and tensor.role is Role.GRADIENT for tensor in inputs):
                found.update(operator.outputs)
    return found


def stated_tensors(plan: Plan, operators: list[Operator]) -> set[str]:
    """Return the tensors that are written out: those that the reader would not derive just so from the others."""
    mentioned: set[str] = set()
    for operator in operators:
        mentioned.update(writes(operator))
        if isinstance(operator, Backward):
            mentioned.update(operator.inputs)
    linked, undecided = link_gradients(plan.tensors)
    stated = {
        name: replace(tensor, gradient="") for name, tensor in plan.tensors.items()
        if tensor.role not in PRODUCED or name not in mentioned
        or tensor.gradient != linked.get(name, "") or (name in undecided and not tensor.gradient)
    }  # fmt: skip
    for _ in range(4):
        derived = derive_tensors(stated, frozenset(), operators, plan.mesh)
        wrong = [
            name for name, tensor in plan.tensors.items()
            if name not in stated and derived.get(name) != replace(tensor, gradient="")
        ]  # fmt: skip
        if not wrong:
            return set(stated)
        stated.update((name, replace(plan.tensors[name], gradient="")) for name in wrong)
    return set(plan.tensors)
