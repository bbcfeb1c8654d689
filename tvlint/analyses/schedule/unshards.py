"""When the parameters of a pipeline stage are whole on its rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tvlint.analyses.schedule.steps import Step
from tvlint.ir.schedule import ActionKind


@dataclass
class Unshards:
    """Compute steps on sharded parameters, and unshards and reshards that have no counterpart."""

    sharded: list[Step] = field(default_factory=list)
    """The first compute step of each stretch in which the parameters are not there."""
    repeated: list[Step] = field(default_factory=list)
    """Unshards of what is whole."""
    needless: list[Step] = field(default_factory=list)
    """Reshards of what is not whole, and was not computed on either."""
    left: list[Step] = field(default_factory=list)
    """The last unshard of pipeline stages that stay whole, where others of the schedule do not."""


def unshards(rows: Iterable[Iterable[Step]]) -> Unshards:
    """Follow each pipeline stage on each rank; a schedule without any unshard leaves that to the runtime."""
    found = Unshards()
    rows = [list(row) for row in rows]
    if not any(step.kind is ActionKind.UNSHARD for row in rows for step in row):
        return found
    for row in rows:
        whole: dict[int, Step] = {}
        reported: set[int] = set()
        for step in row:
            stage = step.stage
            if step.computes and stage not in whole and stage not in reported:
                found.sharded.append(step)
                reported.add(stage)
            elif step.kind is ActionKind.UNSHARD:
                if stage in whole:
                    found.repeated.append(step)
                whole[stage] = step
                reported.discard(stage)
            elif step.kind is ActionKind.RESHARD:
                if stage not in whole and stage not in reported:
                    found.needless.append(step)
                whole.pop(stage, None)
                reported.discard(stage)
        found.left += whole.values()
    stages = {(step.rank, step.stage) for row in rows for step in row if step.kind is ActionKind.UNSHARD}
    if len(found.left) * 2 > len(stages):
        found.left.clear()
    return found
