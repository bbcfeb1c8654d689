"""The shape of a plan at a glance: its mesh and what each kind of rank runs when; what a report draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from tvlint.ir.coverage import Coverage
from tvlint.ir.mesh import Mesh
from tvlint.ir.operators import Backward, Compute
from tvlint.ir.plan import Phase, Plan, Segment

_COMPUTE = frozenset({Compute, Backward})


@dataclass(frozen=True, slots=True)
class Cell:
    """One step of a lane: the phase, pipeline stage (-1: none) and micro-batch (-1: none) of the segment that is run.

    `computes` is False for a segment that only moves data; `judged` says what a proof found in it: `refuted`, `unknown`, or
    nothing.
    """

    phase: Phase
    pipeline_stage: int
    micro_batch: int
    computes: bool = True
    judged: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """The runs of `ranks` of replica 0, in order."""

    ranks: tuple[int, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """One plan's mesh and schedule, and how much of it was understood; None where nothing was derived."""

    path: str
    mesh: Mesh
    micro_batches: int
    lanes: tuple[Lane, ...]
    coverage: Coverage | None = None


Judged: TypeAlias = Mapping[str, tuple[str, frozenset[int]]]
"""What a proof found in segments, by their names, and on which ranks."""


def outline(plan: Plan, judged: Judged = MappingProxyType({}), coverage: Coverage | None = None) -> Outline:
    """Return the outline of `plan`; steps that name no segment of the plan are left out."""
    kinds: dict[_Kind, _Cells] = {}
    looks = {name: kinds.setdefault(kind := _kind(segment), _Cells(kind)) for name, segment in plan.segments.items()}
    lanes = []
    for program in plan.programs:
        found = {name: word for name, (word, ranks) in judged.items() if not ranks.isdisjoint(program.ranks)}
        marked = {
            name: kinds.setdefault(kind := _kind(plan.segments[name], word), _Cells(kind))
            for name, word in found.items()
            if name in looks
        }
        both = {**looks, **marked} if marked else looks
        cells = tuple(both[step.segment][step.micro_batch] for step in program.steps if step.segment in both)
        lanes.append(Lane(program.ranks, cells))
    return Outline(plan.path, plan.mesh, plan.micro_batches, tuple(lanes), coverage)


_Kind: TypeAlias = tuple[Phase, int, bool, str]


class _Cells(dict[int, Cell]):
    """The cells of segments of one kind, by micro-batch, made as they are asked for."""

    def __init__(self, kind: _Kind) -> None:
        super().__init__()
        self._phase, self._pipeline_stage, self._computes, self._judged = kind

    def __missing__(self, micro_batch: int) -> Cell:
        cell = self[micro_batch] = Cell(self._phase, self._pipeline_stage, micro_batch, self._computes, self._judged)
        return cell


def _kind(segment: Segment, judged: str = "") -> _Kind:
    computes = not _COMPUTE.isdisjoint(map(type, segment.operators))
    return segment.phase, segment.pipeline_stage, computes, judged
