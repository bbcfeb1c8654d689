"""Half precision as a program asks for it on GPUs, on the CPU: torch switches it off where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def move_to_cpu(replace: Callable[[str], object]) -> None:
    """Let the CPU cast and scale where a program asks a GPU to, in the dtype that the GPU would take; `replace` hears of it.

    What torch computes in half precision is not the same on both.
    """
    autocast: Any = torch.autocast
    begin_autocast, begin_scaler = autocast.__init__, torch.amp.GradScaler.__init__

    def cast(self: Any, device_type: str, dtype: torch.dtype | None = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            enabled = args[0] if args else kwargs.get("enabled", True)
            if enabled:
                replace("operators that `autocast` casts on GPUs replaced by those that it casts on the CPU")
            device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
        begin_autocast(self, device_type, dtype, *args, **kwargs)

    def scale(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        begin_scaler(self, "cpu" if device == "cuda" else device, *args, **kwargs)

    autocast.__init__, torch.amp.GradScaler.__init__ = cast, scale
