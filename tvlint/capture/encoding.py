"""Values of torch in the JSON of a capture."""

from __future__ import annotations

import base64
import ctypes
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

LEFT_OUT = frozenset({"device", "layout", "pin_memory", "memory_format", "non_blocking", "generator", "implicit"})
"""Arguments that say where and how a tensor is stored, which says nothing of its values."""


def encode(value: Any, identify: Callable[[torch.Tensor], int]) -> Any:
    """Return `value` as JSON; tensors become `{"t": id}` with the id that `identify` gives."""
    if isinstance(value, torch.Tensor):
        return {"t": identify(value)}
    if isinstance(value, list | tuple):
        return [encode(each, identify) for each in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": dtype_name(value)}
    return {"object": type(value).__name__}


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype without its module."""
    return str(dtype).removeprefix("torch.")


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in an argument or a result."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_in(each)


def bytes_of(tensor: torch.Tensor) -> str:
    """Return the elements of `tensor` in row-major order, little-endian, in base64.

    An array of numpy on the storage would keep the program from resizing it. Raises ValueError for a tensor without memory, of
    which there are no elements to return.
    """
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if flat.numel() and not flat.data_ptr():
        raise ValueError(f"a tensor of shape {tuple(tensor.shape)} on `{tensor.device}` has no memory")
    return base64.b64encode(ctypes.string_at(flat.data_ptr(), flat.numel())).decode()
