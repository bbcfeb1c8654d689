"""Match waits with sends and gradient reductions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tvlint.analyses.schedule.steps import Step
from tvlint.ir.schedule import ActionKind

WAITS = {
    ActionKind.WAIT_SEND_FORWARD: ActionKind.SEND_FORWARD,
    ActionKind.WAIT_SEND_BACKWARD: ActionKind.SEND_BACKWARD,
    ActionKind.WAIT_REDUCE_GRADIENT: ActionKind.REDUCE_GRADIENT,
}
"""For each wait, what it waits for."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Issues that nothing waits for, and waits that wait for nothing; a wait before its issue is only the latter."""

    open: tuple[Step, ...]
    loose: tuple[Step, ...]


def waits(rows: Iterable[Iterable[Step]], kinds: Iterable[ActionKind]) -> Waits:
    """The unpaired ends; kinds of issues whose wait occurs nowhere in the schedule are waited for by the runtime."""
    present = set(kinds)
    waited = {issue for wait, issue in WAITS.items() if wait in present}
    if waited & {ActionKind.SEND_FORWARD, ActionKind.SEND_BACKWARD}:
        waited |= {ActionKind.SEND_FORWARD, ActionKind.SEND_BACKWARD}
    loose: list[Step] = []
    left: list[Step] = []
    for row in rows:
        issued: dict[tuple[ActionKind, int, int], list[Step]] = {}
        early: Counter[tuple[ActionKind, int, int]] = Counter()
        for step in row:
            if step.kind in waited:
                issued.setdefault((step.kind, step.stage, step.micro_batch), []).append(step)
            elif step.kind in WAITS:
                key = WAITS[step.kind], step.stage, step.micro_batch
                if issued.get(key):
                    issued[key].pop(0)
                else:
                    loose.append(step)
                    early[key] += 1
        left += [step for key, steps in issued.items() for step in steps[early[key] :]]
    return Waits(tuple(left), tuple(loose))
