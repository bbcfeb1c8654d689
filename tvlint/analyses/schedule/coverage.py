"""Check that each pipeline stage runs each micro-batch forward once and backward once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from tvlint.analyses.schedule.steps import Step
from tvlint.ir.schedule import ActionKind

MAXIMAL_FAULTS = 10_000
"""More are not looked for: a schedule in which almost everything is missing would have the square of its length."""


class FaultKind(Enum):
    """Defects of the steps of one pipeline stage and micro-batch."""

    NO_FORWARD = "no forward"
    REPEATED_FORWARD = "repeated forward"
    NO_BACKWARD = "no backward"
    NO_INPUT_GRADIENT = "no input gradient"
    NO_WEIGHT_GRADIENT = "no weight gradient"
    REPEATED_BACKWARD = "repeated backward"


@dataclass(frozen=True, slots=True)
class Fault:
    """One pipeline stage's fault with one micro-batch, and its steps that show it."""

    kind: FaultKind
    stage: int
    micro_batch: int
    steps: tuple[Step, ...]


def faults(computes: Mapping[tuple[ActionKind, int, int], Sequence[Step]]) -> Iterator[Fault]:
    """Return the first faults over all pipeline stages and micro-batches that occur; without any backward it is inference."""
    return islice(_all_faults(computes), MAXIMAL_FAULTS)


def _all_faults(computes: Mapping[tuple[ActionKind, int, int], Sequence[Step]]) -> Iterator[Fault]:
    stages = sorted({stage for _, stage, _ in computes})
    micro_batches = sorted({micro_batch for _, _, micro_batch in computes})
    trains = any(kind is not ActionKind.FORWARD for kind, _, _ in computes)
    nothing: tuple[Step, ...] = ()
    for stage in stages:
        for micro_batch in micro_batches:
            forward, backward, inputs, weights = (
                tuple(computes.get((kind, stage, micro_batch), nothing))
                for kind in (
                    ActionKind.FORWARD, ActionKind.BACKWARD, ActionKind.INPUT_GRADIENT, ActionKind.WEIGHT_GRADIENT
                )
            )  # fmt: skip
            if not forward:
                yield Fault(FaultKind.NO_FORWARD, stage, micro_batch, backward + inputs + weights)
            if len(forward) > 1:
                yield Fault(FaultKind.REPEATED_FORWARD, stage, micro_batch, forward)
            if trains and forward and not backward and not inputs and not weights:
                yield Fault(FaultKind.NO_BACKWARD, stage, micro_batch, forward)
            elif not backward and inputs and not weights:
                yield Fault(FaultKind.NO_WEIGHT_GRADIENT, stage, micro_batch, inputs)
            elif not backward and weights and not inputs:
                yield Fault(FaultKind.NO_INPUT_GRADIENT, stage, micro_batch, weights)
            if len(backward) + max(len(inputs), len(weights)) > 1:
                yield Fault(FaultKind.REPEATED_BACKWARD, stage, micro_batch, _in_order(backward + inputs + weights))


def _in_order(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return tuple(sorted(steps, key=lambda step: (step.rank, step.position)))
