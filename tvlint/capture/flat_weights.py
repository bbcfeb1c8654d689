"""Weights that `FullyShardedDataParallel` lays one after the other in one flat weight, of which each rank holds a range."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from tvlint.capture.imports import Change
from tvlint.capture.launch import LaunchError
from tvlint.capture.weights import State, plain_name


def changes(
    before: Callable[[Any], Any], aside: Callable[[], AbstractContextManager[None]], on_cpu: Callable[[Any], Any]
) -> dict[str, Change]:
    """Return how its module is changed: it shards on the CPU, outside of the step, and `before` sees its own clipping."""
    return {"torch.distributed.fsdp.fully_sharded_data_parallel": lambda module: _change(module, before, aside, on_cpu)}


def _change(module: Any, before: Callable[[Any], Any], aside: Any, on_cpu: Callable[[Any], Any]) -> None:
    kind = module.FullyShardedDataParallel
    begin = kind.__init__

    def on_one_device(self: Any, *args: Any, **kwargs: Any) -> None:
        device = kwargs.get("device_id")
        kwargs["device_id"] = torch.device("cpu") if device is None else on_cpu(device)
        with aside():
            begin(self, *args, **kwargs)

    kind.__init__ = on_one_device
    kind.clip_grad_norm_ = before(kind.clip_grad_norm_)


def flat_weights(root: nn.Module) -> Iterator[State]:
    """Yield the flat weights in a module, with what lies in each, and the ranks that hold its ranges in order."""
    for name, module in root.named_modules():
        handle = module.__dict__.get("_handle")
        if handle is None or not hasattr(handle, "flat_param"):
            continue
        flat = handle.flat_param
        inside = plain_name(root, f"{name}." if name else "")
        place = {"flat": list(_laid(flat, inside)), "group": dist.get_process_group_ranks(handle.process_group)}
        if not handle.uses_sharded_strategy:
            place["group"] = [dist.get_rank()]
        yield State(f"{inside}_flat_param", "weight", flat, getattr(flat, "_local_shard", flat.data), place)


def parts_of(state: State) -> Mapping[int, int]:
    """Return the weights that a flat weight shows in its place, as its optimizer may hold them."""
    return {id(part): id(state.tensor) for part in getattr(state.tensor, "_params", None) or ()}


def check_gradient(flat: torch.Tensor) -> None:
    """Raise LaunchError where the optimizer finds other gradients in the place of a flat weight's than those in its own."""
    shown = [part.grad for part in getattr(flat, "_params", None) or () if part.grad is not None]
    held = None if flat.grad is None else flat.grad.untyped_storage()._cdata
    if any(each.untyped_storage()._cdata != held for each in shown):
        raise LaunchError(
            "the gradient of a part of a flat weight is replaced by another tensor, which is not followed",
            "change gradients in place, or shard the model with `fully_shard` of `torch.distributed.fsdp`",
        )


def check_optimizer(flat: torch.Tensor, held: Container[int]) -> None:
    """Raise LaunchError where an optimizer holds some of the trained weights in a flat one, and leaves others."""
    parts = [part for part in getattr(flat, "_params", None) or () if part.requires_grad]
    if any(id(part) in held for part in parts) and any(id(part) not in held for part in parts):
        raise LaunchError(
            "an optimizer steps some of the weights in a flat weight and leaves others, which is not followed",
            "give them all to one optimizer, or shard the model with `fully_shard` of `torch.distributed.fsdp`",
        )


def is_flat(tensor: torch.Tensor) -> bool:
    """Return whether a weight is a flat one."""
    return bool(getattr(tensor, "_is_flat_param", False))


def _laid(flat: Any, inside: str) -> Iterator[dict[str, Any]]:
    """Yield the weights that lie in a flat one: the name, the shape and the place of the first element of each."""
    if not all(flat._contiguities):
        raise LaunchError(
            "a weight whose elements do not lie in order is kept in a flat weight, which is not followed",
            "make it contiguous, or shard the model with `fully_shard` of `torch.distributed.fsdp`",
        )
    parts = getattr(flat, "_params", None) or [flat] * len(flat._fqns)
    weights = zip(flat._fqns, flat._shapes, parts, strict=True)
    at = 0
    for size, is_padding in zip(flat._numels_with_padding, flat._is_padding_mask, strict=True):
        if not is_padding:
            name, shape, part = next(weights)
            laid = {"name": plain_name(nn.Module(), inside + name), "shape": list(shape), "at": at}
            yield {**laid, "trained": True} if part.requires_grad else laid
        at += size
