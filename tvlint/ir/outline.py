"""The shape of a plan at a glance: its mesh and what each kind of rank runs when; what a report draws."""

from __future__ import annotations

from dataclasses import dataclass

from tvlint.ir.mesh import Mesh
from tvlint.ir.operators import Backward, Compute
from tvlint.ir.plan import Phase, Plan, Program


@dataclass(frozen=True, slots=True)
class Cell:
    """One step of a lane: the phase, pipeline stage (-1: none) and micro-batch (-1: none) of the segment that is run.

    `computes` is False for a segment that only moves data.
    """

    phase: Phase
    pipeline_stage: int
    micro_batch: int
    computes: bool = True


@dataclass(frozen=True, slots=True)
class Lane:
    """What `ranks` of replica 0 run, in order."""

    ranks: tuple[int, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """One plan's mesh and schedule."""

    path: str
    mesh: Mesh
    micro_batches: int
    lanes: tuple[Lane, ...]


def outline(plan: Plan) -> Outline:
    """The outline of `plan`; steps that name no segment of the plan are left out."""
    return Outline(plan.path, plan.mesh, plan.micro_batches, tuple(_lane(plan, program) for program in plan.programs))


def _lane(plan: Plan, program: Program) -> Lane:
    cells = []
    for step in program.steps:
        segment = plan.segments.get(step.segment)
        if segment is not None:
            computes = any(isinstance(operator, Compute | Backward) for operator in segment.operators)
            cells.append(Cell(segment.phase, segment.pipeline_stage, step.micro_batch, computes))
    return Lane(program.ranks, tuple(cells))
