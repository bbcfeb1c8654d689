"""The form of one use of an operator with the same computed by NumPy and by torch, and what several of them need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tvlint.ops.spec import Call

F = "torch.nn.functional."
N = "nnscaler.runtime.function."


@dataclass(frozen=True)
class Case:
    """A call and two independent statements of what it computes; `torch` gets the module and the tensors."""

    label: str
    op: str
    inputs: tuple[Any, ...]
    numpy: Callable[..., Any]
    torch: Callable[..., Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[tuple[int, ...], ...] = ()
    positive: bool = False
    """Whether the operands must be positive."""
    most: float = 1.5
    """What operands are less than."""

    @property
    def call(self) -> Call:
        return Call(self.op, self.inputs, self.attributes, self.outputs)


def normal(x: Any, eps: float, axes: tuple[int, ...] = (-1,)) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def sig(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))
