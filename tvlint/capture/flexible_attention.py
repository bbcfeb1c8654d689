"""`flex_attention` on a CPU, where torch has no gradient of it: the attention with the mask that its function gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tvlint.capture.failures import KernelError
from tvlint.capture.imports import Change


def changes(replace: Callable[[str], object]) -> dict[str, Change]:
    """Return the change of torch's module by which attention runs without a kernel that is compiled for a GPU."""
    return {"torch.nn.attention.flex_attention": lambda module: _change(module, replace)}


def _change(module: Any, replace: Callable[[str], object]) -> None:
    def attention(
        query: Any, key: Any, value: Any, score_mod: Any = None, block_mask: Any = None, scale: Any = None, **options: Any
    ) -> Any:
        wanted = options.get("return_aux")
        if score_mod is not None or options.get("return_lse") or (wanted is not None and (wanted.lse or wanted.max_scores)):
            raise KernelError("`flex_attention` that changes scores or gives their logarithms cannot run without a GPU")
        replace("`flex_attention` replaced by `scaled_dot_product_attention` with the mask that its function gives")
        mask = None if block_mask is None else _dense(module, block_mask, query, key)
        gqa = bool(options.get("enable_gqa"))
        attend = torch.nn.functional.scaled_dot_product_attention
        result = attend(query, key, value, attn_mask=mask, scale=scale, enable_gqa=gqa)
        return result if wanted is None else (result, module.AuxOutput(lse=None, max_scores=None))

    module.flex_attention = attention


def _dense(module: Any, block_mask: Any, query: Any, key: Any) -> Any:
    """Return the mask of a block mask for each query and key."""
    samples, heads = block_mask.shape[:2]
    return module.create_mask(block_mask.mask_mod, samples, heads, query.shape[-2], key.shape[-2], device=query.device)
