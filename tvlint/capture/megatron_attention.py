"""Megatron's attention on CPUs, where its own layers compute something else than those of TransformerEngine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as with_fields
from typing import Any

import torch
from torch import nn

Replace = Callable[[str], object]


def change(module: Any, replace: Replace) -> None:
    """Let Megatron's own attention take keys and values of different widths, and parts of the sequence.

    Latent attention has the former, context parallelism the latter.
    """
    plain, whole = module.DotProductAttention.__init__, module.DotProductAttention.forward

    def init(self: Any, config: Any, *args: Any, k_channels: Any = None, v_channels: Any = None, **kwargs: Any) -> None:
        ranks, config.context_parallel_size = config.context_parallel_size, 1
        try:
            plain(self, config, *args, **kwargs)
        finally:
            config.context_parallel_size = ranks
        if v_channels is not None:
            replace("attention of TransformerEngine replaced by Megatron's own, with values of another width")
            self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition
        if ranks > 1:
            if getattr(self.scale_mask_softmax, "window_size", None) is not None:
                raise NotImplementedError("a window of attention over parts of the sequence, which TransformerEngine alone has")
            replace("attention of TransformerEngine over parts of the sequence replaced by one that gathers keys and values")

    def forward(self: Any, query: Any, key: Any, value: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
        if self.config.context_parallel_size == 1:
            return whole(self, query, key, value, mask, *args, **kwargs)
        keys, values = _whole_sequence(key), _whole_sequence(value)
        return whole(self, query, keys, values, _rows_of_mask(self, module, len(query), mask), *args, **kwargs)

    module.DotProductAttention.__init__ = init
    module.DotProductAttention.forward = forward


def _whole_sequence(part: torch.Tensor) -> torch.Tensor:
    """Return the keys or values of the whole sequence, of which each rank holds one chunk from either end."""
    from megatron.core import parallel_state as state  # type: ignore[import-not-found,unused-ignore]
    from megatron.core.tensor_parallel import (  # type: ignore[import-not-found,unused-ignore]
        gather_from_sequence_parallel_region as gather,
    )

    chunks = gather(part, group=state.get_context_parallel_group()).chunk(2 * state.get_context_parallel_world_size())
    return torch.cat([*chunks[::2], *chunks[::-2]])


def _rows_of_mask(attention: Any, module: Any, length: int, mask: torch.Tensor | None) -> torch.Tensor | None:
    """Return which keys of the whole sequence the queries of this rank are not to see."""
    from megatron.core import parallel_state as state  # type: ignore[import-not-found,unused-ignore]
    from megatron.core.transformer.enums import AttnMaskType  # type: ignore[import-not-found,unused-ignore]

    if mask is not None or attention.scale_mask_softmax.attn_mask_type != AttnMaskType.causal:
        return mask
    ranks, rank = state.get_context_parallel_world_size(), state.get_context_parallel_rank()
    rows = torch.triu(torch.ones(ranks * length, ranks * length), diagonal=1).bool().chunk(2 * ranks)
    return torch.cat([rows[rank], rows[-1 - rank]])[None, None]


class WholeLinear(nn.Module):
    """A linear layer of which each tensor-parallel rank holds all, as TransformerEngine has it for latent attention."""

    def __init__(self, input_size: int, output_size: int, *, config: Any, init_method: Any, bias: bool, **_: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(output_size, input_size, dtype=config.params_dtype))
        init_method(self.weight)
        self.bias = nn.Parameter(torch.zeros(output_size, dtype=config.params_dtype)) if bias else None
        for weight in self.parameters():
            weight.allreduce = True
            weight.sequence_parallel = config.sequence_parallel

    def forward(self, given: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the product, and no bias that is still to be added."""
        return nn.functional.linear(given, self.weight, self.bias), None


def take_whole_projections(module: Any, is_asked: Callable[[], bool], replace: Replace) -> None:
    """Let latent attention project down by whole layers where the launch asks for TransformerEngine, which shares none out.

    Before Megatron core 0.14, which is the first to name `TELinear` there, TransformerEngine shares them out too.
    """
    if not hasattr(module, "TELinear"):
        return
    plain = module.MLASelfAttention.__init__
    if not isinstance(module.TELinear, type):  # what stands for it where TransformerEngine is not installed
        module.TELinear = WholeLinear
    whole = ("linear_q_down_proj", "linear_kv_down_proj")

    def init(self: Any, config: Any, submodules: Any, *args: Any, **kwargs: Any) -> None:
        if is_asked():
            replace("layers of TransformerEngine that each rank holds whole replaced by such of torch")
            submodules = with_fields(submodules, **{name: WholeLinear for name in whole if getattr(submodules, name)})
        plain(self, config, submodules, *args, **kwargs)

    module.MLASelfAttention.__init__ = init
