"""DeepSpeed clips gradients by a function of its engine: those before it are compared, as where torch clips."""

from __future__ import annotations

from typing import Any

from tvlint.capture.imports import Change
from tvlint.capture.step import Step


def changes(step: Step) -> dict[str, Change]:
    """Return how the modules of DeepSpeed are changed, by their names."""
    return {"deepspeed.runtime.utils": lambda module: _clip(module, step)}


def _clip(module: Any, step: Step) -> None:
    module.clip_grad_norm_ = step.before(module.clip_grad_norm_)
