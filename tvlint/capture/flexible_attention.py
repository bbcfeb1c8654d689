"""`flex_attention` on a CPU, where torch has no gradient of it: the attention with the mask that its function gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

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
        gqa = bool(options.get("enable_gqa"))
        if not gqa and query.shape[-3] != key.shape[-3]:
            raise ValueError(f"{query.shape[-3]} heads of queries and {key.shape[-3]} of keys need `enable_gqa`")
        replace("`flex_attention` replaced by `scaled_dot_product_attention` with the mask that its function gives")
        mask = None if block_mask is None else _dense(module, block_mask, query, key)
        attend = torch.nn.functional.scaled_dot_product_attention
        result = attend(query, key, value, attn_mask=mask, scale=scale, enable_gqa=gqa)
        return result if wanted is None else (result, module.AuxOutput(lse=None, max_scores=None))

    module.flex_attention = attention


def _dense(module: Any, block_mask: Any, query: Any, key: Any) -> Any:
    """Return the mask of a block mask for each query and key.

    A kernel skips blocks that are not listed, and asks the function nothing in full ones: those that a program lists itself
    may be others than the function says.
    """
    (samples, heads), lengths = block_mask.shape[:2], (query.shape[-2], key.shape[-2])
    if tuple(block_mask.shape[-2:]) != lengths:
        raise ValueError(
            f"a mask for lengths {tuple(block_mask.shape[-2:])} is given with queries and keys of lengths {lengths}"
        )
    mask = module.create_mask(block_mask.mask_mod, samples, heads, *lengths, device=query.device)
    with _disable_current_modes():
        full = None
        if block_mask.full_kv_num_blocks is not None:
            full = module.BlockMask.from_kv_blocks(
                block_mask.full_kv_num_blocks, block_mask.full_kv_indices, BLOCK_SIZE=block_mask.BLOCK_SIZE
            )
        skips = bool((mask & ~_elements(block_mask, lengths)).any())
        if skips or (full is not None and bool((_elements(full, lengths) & ~mask).any())):
            raise KernelError("`flex_attention` with other blocks than those of its function cannot run without a GPU")
    return mask


def _elements(block_mask: Any, lengths: tuple[int, int]) -> Any:
    """Return which queries and keys lie in the blocks."""
    blocks = block_mask.to_dense().bool()
    for dim, size in zip((-2, -1), block_mask.BLOCK_SIZE, strict=True):
        blocks = blocks.repeat_interleave(min(size, lengths[dim]), dim)
    return blocks[..., : lengths[0], : lengths[1]]
