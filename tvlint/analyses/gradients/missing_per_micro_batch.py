"""Gradients of weights that the backward of one micro-batch gives, and that another micro-batch lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from tvlint.ir.operators import Backward, Communicate, Compute
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
    weights = {name: name for name, tensor in plan.tensors.items() if tensor.role is Role.WEIGHT}
    gathers = [operator for operator in plan.operators() if isinstance(operator, Communicate)]
    pairs = [pair for operator in gathers for pair in zip(operator.inputs, operator.outputs, strict=False)]
    weights |= {gathered: weights[name] for name, gathered in pairs if name in weights}
    given = {name: tuple(_given(plan, name, weights)) for name in plan.segments}
    taken = {name: tuple(_taken(segment, weights)) for name, segment in plan.segments.items()}
    for program in plan.programs:
        if len(set(_batches(plan, program).values())) < 2:
            continue
        for weight, batches in _uses(plan, program, given, taken).items():
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


def _batches(plan: Plan, program: Program) -> dict[str, frozenset[int]]:
    """Return the micro-batches that the program runs each segment forward or backward for."""
    found: dict[str, set[int]] = {}
    for step in program.steps:
        if step.micro_batch >= 0 and step.segment in plan.segments:
            found.setdefault(step.segment, set()).add(step.micro_batch)
    phases = Phase.FORWARD, Phase.BACKWARD
    return {name: frozenset(batches) for name, batches in found.items() if plan.segments[name].phase in phases}


def _given(plan: Plan, name: str, weights: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...], int, bool]]:
    """Yield the weights that the backwards of a segment are about, the outputs of their forwards, and which are given
    gradients.
    """
    for index, operator in enumerate(plan.segments[name].operators):
        if not isinstance(operator, Backward):
            continue
        operands = operator.forward.tensor_operands
        for operand, gradient in zip_longest(operands, operator.outputs[: len(operands)], fillvalue=""):
            if operand in weights:
                yield weights[operand], operator.forward.outputs, index, bool(gradient)


def _taken(segment: Segment, weights: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """Yield the weights that the operators of a segment take, gathered or as they are, with the outputs of each."""
    for index, operator in enumerate(segment.operators):
        if isinstance(operator, Compute):
            for operand in (name for name in operator.tensor_operands if name in weights):
                yield weights[operand], operator.outputs, index


def _uses(
    plan: Plan,
    program: Program,
    given: dict[str, tuple[tuple[str, tuple[str, ...], int, bool], ...]],
    taken: dict[str, tuple[tuple[str, tuple[str, ...], int], ...]],
) -> dict[str, dict[int, Uses]]:
    """Return the uses of each weight in each micro-batch; of those of a forward segment, those that nothing takes backward for
    this micro-batch, but for others.
    """
    found: dict[str, dict[int, Uses]] = {}
    with_gradient = set[tuple[str, tuple[str, ...]]]()
    steps = [(step, plan.segments[step.segment]) for step in program.steps if step.segment in plan.segments]
    for step, segment in steps:
        if segment.phase is not Phase.BACKWARD or step.micro_batch < 0:
            continue
        for weight, outputs, index, gives in given[step.segment]:
            uses = found.setdefault(weight, {}).setdefault(step.micro_batch, {})
            before = uses.get(outputs)
            if before is None or (gives and not before[2]):
                uses[outputs] = (step.segment, index, gives)
            if gives:
                with_gradient.add((weight, outputs))
    for step, segment in steps:
        if segment.phase is not Phase.FORWARD or step.micro_batch < 0:
            continue
        for weight, outputs, index in taken[step.segment]:
            if (weight, outputs) in with_gradient:
                found[weight].setdefault(step.micro_batch, {}).setdefault(outputs, (segment.name, index, False))
    return found
