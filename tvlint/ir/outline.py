"""The shape of a plan at a glance: its mesh and what each kind of rank runs when; what a report draws."""

from __future__ import annotations

from dataclasses import dataclass

from tvlint.ir.mesh import Mesh
from tvlint.ir.operators import Backward, Compute
from tvlint.ir.plan import Phase, Plan, Segment

_COMPUTE = frozenset({Compute, Backward})


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
    kinds: dict[tuple[Phase, int, bool], _Cells] = {}
    looks = {name: kinds.setdefault(kind := _kind(segment), _Cells(kind)) for name, segment in plan.segments.items()}
    lanes = (
        Lane(program.ranks, tuple(looks[step.segment][step.micro_batch] for step in program.steps if step.segment in looks))
        for program in plan.programs
    )
    return Outline(plan.path, plan.mesh, plan.micro_batches, tuple(lanes))


class _Cells(dict[int, Cell]):
    """The cells of segments of one kind, by micro-batch, made as they are asked for."""

    def __init__(self, kind: tuple[Phase, int, bool]) -> None:
        super().__init__()
        self._phase, self._pipeline_stage, self._computes = kind

    def __missing__(self, micro_batch: int) -> Cell:
        cell = self[micro_batch] = Cell(self._phase, self._pipeline_stage, micro_batch, self._computes)
        return cell


def _kind(segment: Segment) -> tuple[Phase, int, bool]:
    computes = not _COMPUTE.isdisjoint(map(type, segment.operators))
    return segment.phase, segment.pipeline_stage, computes
