"""That a value which communication puts something else in is not held elsewhere as it was, under that or another name."""

from __future__ import annotations

from tvlint.certificate.meetings import touched, weights_of_gradients
from tvlint.certificate.tables import Rejected
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, Receive
from tvlint.ir.plan import Phase, Plan, Program, Role, Segment, Step


def check_inputs(plan: Plan, program: Program) -> None:
    """Rejects a program with a segment that puts something else in an input, and a later run that has it from the start."""
    loaded = {name for own in plan.segments.values() if own.phase is Phase.DATA for name in own.outputs}
    made = {own.outputs for part in plan.segments.values() for own in part.operators if isinstance(own, Compute)}
    runs = [(step, plan.segments[step.segment]) for step in program.steps if step.micro_batch <= 0]
    for number, (step, segment) in enumerate(runs):
        for own in _changed(segment)[1]:
            tensor = plan.tensors.get(own)
            if tensor is None or tensor.role is not Role.INPUT or own in loaded:
                continue
            known = {own, *_outside(segment, step, own)}
            for run, there in runs[number + 1 :]:
                touched_there = {*there.inputs, *(name for each in there.operators for name in _read(each, made))}
                found = {name for name in touched_there if not known.isdisjoint({name, *_outside(there, run, name)})}
                if found and not (own in segment.outputs and found.issubset(there.inputs)):
                    raise Rejected(f"`{segment.name}` replaces the input `{own}`, which `{there.name}` has from the start")


def _outside(segment: Segment, step: Step, name: str) -> set[str]:
    """What a run calls the value that the segment calls `name`."""
    pairs = zip((segment.inputs, segment.outputs), step.outside(segment), strict=True)
    return {outer for own, names in pairs for inner, outer in zip(own, names, strict=True) if inner == name}


def _read(own: Operator, made: set[tuple[str, ...]]) -> set[str]:
    """What an operator reads; what a forward operator kept for it is followed with that operator."""
    return set() if isinstance(own, Backward) and own.forward.outputs in made else touched(own)[0]


def check_buffers(plan: Plan, program: Program) -> None:
    """Rejects a program that gives a value a second name, or reads a value by one name that is replaced by another.

    Gradients of weights are left out: what replaces them is what the rank has from then on. Other gradients may have other
    names: their sums are told by what they are made of.
    """
    weights = weights_of_gradients(plan)
    names: dict[tuple[int, str], set[str]] = {}
    last: dict[tuple[int, str], int] = {}
    for number, step in enumerate(program.steps):
        segment = plan.segments[step.segment]
        inside, outside = (segment.inputs, segment.outputs), step.outside(segment)
        for inner, name in (pair for own, other in zip(inside, outside, strict=True) for pair in zip(own, other, strict=True)):
            names.setdefault((step.micro_batch, name), set()).add(inner)
        last.update({(step.micro_batch, name): number for name in outside[0]})
    for number, step in enumerate(program.steps):
        segment = plan.segments[step.segment]
        inputs, outputs = step.outside(segment)
        made, replaced = _changed(segment)
        for inner, name in zip(segment.inputs, inputs, strict=True):
            out = outputs[segment.outputs.index(inner)] if inner in segment.outputs else ""
            if out and inner not in made and out != name:
                raise Rejected(f"`{name}` is given the name `{out}` by `{segment.name}`, which does not make it")
            if inner not in replaced or inner in weights:
                continue
            key, tensor = (step.micro_batch, name), plan.tensors.get(inner)
            gradient = tensor is not None and tensor.role is Role.GRADIENT
            if names[key] != {inner} and not gradient:
                raise Rejected(f"`{segment.name}` replaces what is in `{name}`, which has other names elsewhere")
            if not out and last[key] > number:
                raise Rejected(f"`{segment.name}` replaces what is in `{name}`, and gives it to none that read it later")


def _changed(segment: Segment) -> tuple[set[str], set[str]]:
    """What the operators of a segment compute, and what they receive or have communicated."""
    made: set[str] = set()
    replaced: set[str] = set()
    for own in segment.operators:
        if isinstance(own, Compute | Backward):
            made.update(own.outputs)
        elif isinstance(own, Communicate):
            replaced.update(own.outputs)
        elif isinstance(own, Receive):
            replaced.add(own.tensor)
    return made, replaced
