"""Check that the gradients of each pipeline stage are reduced once, after its last backward."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tvlint.analyses.schedule.steps import LAST_BACKWARDS, Step
from tvlint.ir.schedule import ActionKind


@dataclass
class Reductions:
    """Defects of the gradient reductions."""

    early: list[tuple[Step, Step]] = field(default_factory=list)
    """A reduction, and the last backward of its pipeline stage, which comes later."""
    repeated: list[Step] = field(default_factory=list)
    missing: list[Step] = field(default_factory=list)
    """The last backward of each pipeline stage that is never reduced."""


def reductions(rows: Iterable[Iterable[Step]]) -> Reductions:
    """Follow each pipeline stage on each rank; a schedule without any reduction leaves that to the runtime."""
    found = Reductions()
    rows = [list(row) for row in rows]
    if not any(step.kind is ActionKind.REDUCE_GRADIENT for row in rows for step in row):
        return found
    for row in rows:
        last: dict[int, Step] = {}
        reduced: dict[int, Step] = {}
        for step in row:
            if step.kind in LAST_BACKWARDS:
                last[step.stage] = step
            elif step.kind is ActionKind.REDUCE_GRADIENT:
                if step.stage in reduced:
                    found.repeated.append(step)
                else:
                    reduced[step.stage] = step
        found.early += [
            (step, last[stage]) for stage, step in reduced.items() if stage in last and last[stage].position > step.position
        ]
        found.missing += [step for stage, step in last.items() if stage not in reduced]
    return found
