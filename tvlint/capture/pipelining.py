"""Schedules of `torch.distributed.pipelining`: the training step begins with theirs, and setting up is no part of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvlint.capture.imports import Change
from tvlint.capture.step import Step

_SETS_UP = ("_initialize_stage", "_initialize_stages", "_initialize_pp_stages")


def changes(step: Step) -> Mapping[str, Change]:
    """Return how the modules of `torch.distributed.pipelining` are changed, by their names."""
    return {"torch.distributed.pipelining.schedules": lambda module: _schedules(module, step)}


def _schedules(module: Any, step: Step) -> None:
    for kind in (module.PipelineScheduleSingle, module.PipelineScheduleMulti):
        kind.step = _begun(kind.step, step)
        for name in _SETS_UP:
            if name in vars(kind):
                setattr(kind, name, step.aside()(getattr(kind, name)))


def _begun(schedule: Any, step: Step) -> Any:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        stages = getattr(self, "_stages", None) or [self._stage]
        step.begin_with([stage.submod for stage in stages], None)
        return schedule(self, *args, **kwargs)

    return run
