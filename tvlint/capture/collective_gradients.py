"""Gradients of collectives as GPUs compute them: `torch.distributed.nn` has other code for the backend that stands in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvlint.capture.imports import Change


def changes(replace: Callable[[str], object]) -> dict[str, Change]:
    """Return the change of torch's own module by which it runs what it runs on GPUs."""
    return {"torch.distributed.nn.functional": lambda module: _run_as_on_gpus(module, replace)}


def _run_as_on_gpus(module: Any, replace: Callable[[str], object]) -> None:
    module.dist = _OnGpus(module.dist, replace)


class _OnGpus:
    """`torch.distributed`, which says of each group that its backend is that of GPUs."""

    def __init__(self, distributed: Any, replace: Callable[[str], object]) -> None:
        self.distributed, self.replace = distributed, replace

    def __getattr__(self, name: str) -> Any:
        return getattr(self.distributed, name)

    def get_backend(self, group: Any = None) -> str:
        """Return the backend of GPUs."""
        self.replace("gradients of collectives in `torch.distributed.nn` computed as with the backend `nccl`")
        return str(self.distributed.Backend.NCCL)
