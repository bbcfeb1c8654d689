"""That a value which communication puts something else in is not held elsewhere as it was, under that or another name."""

from __future__ import annotations

from tvlint.certificate.running import bound_names
from tvlint.certificate.tables import Rejected
from tvlint.ir.operators import Backward, Communicate, Compute, Receive
from tvlint.ir.plan import Plan, Program, Role, Segment


def check_buffers(plan: Plan, program: Program) -> None:
    """Rejects a program that gives a value a second name, or reads a value by one name that is replaced by another.

    Gradients are left out where they are replaced: their sums are told by what they are made of.
    """
    names: dict[tuple[int, str], set[str]] = {}
    last: dict[tuple[int, str], int] = {}
    for number, step in enumerate(program.steps):
        segment = plan.segments[step.segment]
        inside, outside = (segment.inputs, segment.outputs), bound_names(segment, step)
        for inner, name in (pair for own, other in zip(inside, outside, strict=True) for pair in zip(own, other, strict=True)):
            names.setdefault((step.micro_batch, name), set()).add(inner)
        last.update({(step.micro_batch, name): number for name in outside[0]})
    for number, step in enumerate(program.steps):
        segment = plan.segments[step.segment]
        inputs, outputs = bound_names(segment, step)
        made, replaced = _changed(segment)
        for inner, name in zip(segment.inputs, inputs, strict=True):
            out = outputs[segment.outputs.index(inner)] if inner in segment.outputs else ""
            if out and inner not in made and out != name:
                raise Rejected(f"`{name}` is given the name `{out}` by `{segment.name}`, which does not make it")
            tensor = plan.tensors.get(inner)
            if inner not in replaced or (tensor is not None and tensor.role is Role.GRADIENT):
                continue
            key = (step.micro_batch, name)
            if names[key] != {inner}:
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
