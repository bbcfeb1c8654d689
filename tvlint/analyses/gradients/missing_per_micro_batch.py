"""Gradients of weights that the backward of one micro-batch gives, and that another micro-batch lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from tvlint.ir.operators import Backward, Compute
from tvlint.ir.plan import Phase, Plan, Program, Role, Segment


@dataclass(frozen=True, slots=True)
class LeftOut:
    """On `ranks`, nothing for `micro_batch` gives the gradient of `weight`, nor does operator `index` of `segment`."""

    weight: str
    segment: str
    index: int
    micro_batch: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unused:
    """On `ranks`, nothing reads the gradient `name` that `segment` gives for `micro_batch`; that for `other` is read."""

    name: str
    segment: str
    micro_batch: int
    other: int
    ranks: tuple[int, ...]


def unused(plan: Plan) -> Iterator[Unused]:
    """Yield the gradients that backwards give for all micro-batches and other segments read for some, the first of each.

    What adds up the gradients of a weight over micro-batches is read once, with the last.
    """
    seen = set[tuple[str, str]]()
    added = {tensor.gradient for tensor in plan.tensors.values() if tensor.role is Role.WEIGHT}
    for program in plan.programs:
        made: dict[tuple[str, str], set[int]] = {}
        read: dict[str, set[int]] = {}
        steps = [(step, plan.segments[step.segment]) for step in program.steps if step.segment in plan.segments]
        for step, segment in steps:
            taken, given = step.outside(segment)
            for name in taken:
                read.setdefault(name, set()).add(step.micro_batch)
            for name in given if segment.phase is Phase.BACKWARD and step.micro_batch >= 0 else ():
                if name in plan.tensors and name not in added and plan.tensors[name].role is Role.GRADIENT:
                    made.setdefault((step.segment, name), set()).add(step.micro_batch)
        for (segment_name, name), batches in made.items():
            by = read.get(name, set())
            rest = sorted(batches - by)
            if rest and by & batches and -1 not in by and (segment_name, name) not in seen and name not in plan.outputs:
                seen.add((segment_name, name))
                yield Unused(name, segment_name, rest[0], min(by & batches), program.ranks)


Uses = dict[tuple[str, ...], tuple[str, int, bool]]
"""By the outputs of a forward operator that uses a weight: where it is taken backward, and whether that gives the gradient."""


def left_out(plan: Plan) -> Iterator[LeftOut]:
    """Yield where a backward, or the second half of a split one, is not run for some of the micro-batches that run forward: the
    first such use of a weight in a program.
    """
    weights = frozenset(name for name, tensor in plan.tensors.items() if tensor.role is Role.WEIGHT)
    given = {name: tuple(_given(plan, name, weights)) for name in plan.segments}
    for program in plan.programs:
        for weight, batches in _uses(plan, program, given).items():
            lacking = {
                batch: next(((segment, index) for segment, index, gives in uses.values() if not gives), None)
                for batch, uses in batches.items()
            }
            if None not in lacking.values():
                continue
            for batch, place in sorted(lacking.items()):
                if place is not None:
                    yield LeftOut(weight, *place, batch, program.ranks)
                    break


def _given(plan: Plan, name: str, weights: frozenset[str]) -> Iterator[tuple[str, tuple[str, ...], int, bool]]:
    """Yield the weights that the backwards of a segment are about, the outputs of their forwards, and which are given
    gradients.
    """
    for index, operator in enumerate(plan.segments[name].operators):
        if not isinstance(operator, Backward):
            continue
        operands = [operand for operand in operator.forward.inputs if isinstance(operand, str)]
        for operand, gradient in zip_longest(operands, operator.outputs[: len(operands)], fillvalue=""):
            if operand in weights:
                yield operand, operator.forward.outputs, index, bool(gradient)


def _uses(
    plan: Plan, program: Program, given: dict[str, tuple[tuple[str, tuple[str, ...], int, bool], ...]]
) -> dict[str, dict[int, Uses]]:
    found: dict[str, dict[int, Uses]] = {}
    for step in program.steps:
        segment = plan.segments.get(step.segment)
        if segment is None or segment.phase is not Phase.BACKWARD or step.micro_batch < 0:
            continue
        for weight, outputs, index, gives in given[step.segment]:
            uses = found.setdefault(weight, {}).setdefault(step.micro_batch, {})
            before = uses.get(outputs)
            if before is None or (gives and not before[2]):
                uses[outputs] = (step.segment, index, gives)
    for step in program.steps:
        segment = plan.segments.get(step.segment)
        if segment is not None and segment.phase is Phase.FORWARD and step.micro_batch >= 0:
            _use_forward(segment, step.micro_batch, found)
    return found


def _use_forward(segment: Segment, micro_batch: int, found: dict[str, dict[int, Uses]]) -> None:
    """Add the uses of weights in a forward segment that nothing takes backward for this micro-batch, but for others."""
    for index, operator in enumerate(segment.operators):
        if not isinstance(operator, Compute):
            continue
        for weight in (name for name in operator.inputs if isinstance(name, str) and name in found):
            if any(uses.get(operator.outputs, ("", 0, False))[2] for uses in found[weight].values()):
                found[weight].setdefault(micro_batch, {}).setdefault(operator.outputs, (segment.name, index, False))
