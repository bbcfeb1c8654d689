"""Context parallelism of torch on a CPU, for which it has no attention: one that gathers keys and values.

A causal mask is followed where both programs write it alike, so that a program which imports `context_parallel` runs causal
attention in operators of their own, on one rank as well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from tvlint.capture.failures import KernelError
from tvlint.capture.imports import Change

_MODULE = "torch.distributed.tensor.experimental._context_parallel._attention"


def changes(replace: Callable[[str], object]) -> dict[str, Change]:
    """Return the change of torch's module by which attention over parts of the sequence runs without a kernel for a GPU."""
    return {_MODULE: lambda module: _change(module, replace)}


@dataclass(frozen=True, slots=True)
class _Parts:
    """The ranks that share the sequence out, which is the dimension `dim`: a range for each, or a chunk from either end."""

    dim: int
    group: Any
    balanced: bool

    def whole(self, part: torch.Tensor) -> torch.Tensor:
        """Return what all ranks hold of the sequence, in their order."""
        whole: torch.Tensor = _Gathered.apply(part, self.dim, self.group)
        return whole

    def places(self, length: int, rank: int) -> torch.Tensor:
        """Return the places of the whole sequence that a rank holds."""
        ranks = self.group.size()
        chunks = torch.arange(ranks * length).chunk(2 * ranks if self.balanced else ranks)
        return torch.cat([chunks[rank], chunks[-1 - rank]]) if self.balanced else chunks[rank]


def _change(module: Any, replace: Callable[[str], object]) -> None:
    functional = nn.functional
    plain = functional.scaled_dot_product_attention
    entered: list[_Parts] = []

    def enable(seq_dim: int, mesh: Any) -> None:
        if module._dispatch_mode != module._DispatchMode.MONKEY_PATCH:
            raise KernelError("context parallelism of modules that are wrapped cannot run without a GPU")
        entered.append(_Parts(seq_dim, mesh.get_group(), module._cp_options.enable_load_balance))

    def attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, **kwargs: Any
    ) -> Any:
        if entered and attn_mask is not None:
            raise KernelError("context parallelism with a mask cannot run without a GPU")
        parts = entered[-1] if entered else None
        if not is_causal or dropout_p or not (entered or _is_imported(module)):
            if parts is not None:
                replace("attention of torch over parts of the sequence replaced by one that gathers keys and values")
                key, value = parts.whole(key), parts.whole(value)
            return plain(query, key, value, attn_mask, dropout_p, is_causal and parts is None, **kwargs)
        replace("causal attention of torch, over parts of the sequence, replaced by one in operators of their own")
        rows, columns = (torch.arange(each.shape[-2]) for each in (query, key))
        if parts is not None:
            ranks = range(parts.group.size())
            rows = parts.places(query.shape[parts.dim], parts.group.rank())
            columns = torch.cat([parts.places(key.shape[parts.dim], rank) for rank in ranks])
            key, value = parts.whole(key), parts.whole(value)
        return _causal(query, key, value, rows[:, None] < columns, **kwargs)

    functional.scaled_dot_product_attention = attention
    module._enable_context_parallel_dispatcher_impl = enable
    module._disable_context_parallel_dispatcher_impl = entered.pop


def _is_imported(module: Any) -> bool:
    """Return whether a module that is not torch's has imported `context_parallel`."""
    others = (other for name, other in list(sys.modules.items()) if name.split(".")[0] != "torch")
    return any(vars(other).get("context_parallel") is module.context_parallel for other in others if hasattr(other, "__dict__"))


def _causal(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    hidden: torch.Tensor,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Return the attention, without the keys that are hidden from queries."""
    if enable_gqa:
        key, value = (each.repeat_interleave(query.shape[-3] // each.shape[-3], -3) for each in (key, value))
    scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ value


class _Gathered(torch.autograd.Function):
    """What all ranks have along a dimension; the gradients of a rank's part are summed."""

    @staticmethod
    def forward(context: Any, part: torch.Tensor, dim: int, group: Any) -> torch.Tensor:
        context.dim, context.group = dim, group
        parts = [torch.empty_like(part, memory_format=torch.contiguous_format) for _ in range(group.size())]
        dist.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts, dim)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        parts = [part.contiguous() for part in gradients[0].chunk(context.group.size(), context.dim)]
        part = torch.empty_like(parts[0])
        dist.reduce_scatter(part, parts, group=context.group)
        return part, None, None
