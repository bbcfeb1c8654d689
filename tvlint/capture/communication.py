"""Record torch's communication operators in the words of a capture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, Work
from torch.utils._python_dispatch import _disable_current_modes

from tvlint.capture.encoding import tensors_in

REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")
"""Reductions in the order in which c10d numbers them."""

Identify = Callable[[torch.Tensor], int]

_KINDS = {
    "allreduce_": "all-reduce",
    "allreduce_coalesced_": "all-reduce",
    "_allgather_base_": "all-gather",
    "allgather_": "all-gather",
    "allgather_coalesced_": "all-gather",
    "allgather_into_tensor_coalesced_": "all-gather",
    "_reduce_scatter_base_": "reduce-scatter",
    "reduce_scatter_": "reduce-scatter",
    "reduce_scatter_tensor_coalesced_": "reduce-scatter",
    "alltoall_base_": "all-to-all",
    "alltoall_": "all-to-all",
    "broadcast_": "broadcast",
    "reduce_": "reduce",
    "gather_": "gather",
    "scatter_": "scatter",
    "barrier": "barrier",
    "monitored_barrier_": "barrier",
    "send": "send",
    "recv_": "receive",
}
"""Operators of `c10d`, each with its kind."""

_FUNCTIONAL = {
    "all_reduce": "all-reduce",
    "all_reduce_": "all-reduce",
    "all_reduce_coalesced": "all-reduce",
    "all_gather_into_tensor": "all-gather",
    "all_gather_into_tensor_out": "all-gather",
    "all_gather_into_tensor_coalesced": "all-gather",
    "reduce_scatter_tensor": "reduce-scatter",
    "reduce_scatter_tensor_out": "reduce-scatter",
    "reduce_scatter_tensor_coalesced": "reduce-scatter",
    "all_to_all_single": "all-to-all",
    "broadcast": "broadcast",
    "broadcast_": "broadcast",
}
"""Operators of `_c10d_functional`, each with its kind."""

_WRITES_NOTHING = frozenset({"send", "barrier"})


_GATHER = "c10d.allgather_.default"


def run(name: str, func: Any, args: Any, kwargs: Any, arguments: dict[str, Any]) -> Any:
    """Run an operator; an all-gather of parts of unequal lengths, of which gloo has none, as one of parts that are padded.

    What a rank gives has the shape of its part; else gloo refuses it.
    """
    parts = arguments["output_tensors"][0] if name == _GATHER else []
    if len({part.shape[:1] for part in parts}) < 2 or len({part.shape[1:] for part in parts}) > 1:
        return func(*args, **kwargs)
    (given,), outputs = arguments["input_tensors"], arguments["output_tensors"]
    if given.shape != parts[ProcessGroup.unbox(arguments["process_group"]).rank()].shape:
        return func(*args, **kwargs)
    with _disable_current_modes():
        padded = given.new_zeros((max(map(len, parts)), *given.shape[1:]))
        padded[: len(given)] = given
        gathered = [torch.empty_like(padded) for _ in parts]
        _, work = func(**{**arguments, "input_tensors": [padded], "output_tensors": [gathered]})
        Work.unbox(work).wait()
        for part, whole in zip(parts, gathered, strict=True):
            part.copy_(whole[: len(part)])
    return outputs, work


def communication(name: str, arguments: dict[str, Any], result: Any, identify: Identify) -> dict[str, Any] | None:
    """Return the event of the communication operator `name`; None for one that a capture does not know."""
    space, _, operator = name.partition(".")
    operator = operator.partition(".")[0]
    if space == "c10d" and operator in _KINDS:
        return _of_process_group(_KINDS[operator], arguments, identify)
    if space == "_c10d_functional" and operator in _FUNCTIONAL:
        return _functional(_FUNCTIONAL[operator], arguments, result, identify)
    return None


def _of_process_group(kind: str, arguments: dict[str, Any], identify: Identify) -> dict[str, Any]:
    group = ProcessGroup.unbox(arguments["process_group"])
    ranks = dist.get_process_group_ranks(group)
    event: dict[str, Any] = {"communication": kind, "group": ranks, "communicator": group.group_name}
    if "reduce_op" in arguments:
        event["reduce"] = REDUCTIONS[arguments["reduce_op"].op()]
    for key, name in (("root_rank", "root"), ("dst", "peer"), ("src", "peer")):
        if key in arguments:
            event[name] = ranks[int(arguments[key])]
    if arguments.get("tag"):
        event["tag"] = int(arguments["tag"])
    for key, name in (("input_split_sizes", "splits"), ("output_split_sizes", "receive_splits")):
        if arguments.get(key):
            event[name] = [int(size) for size in arguments[key]]
    read = [arguments[key] for key in ("input_tensor", "input_tensors", "inputs", "input") if key in arguments]
    written = [arguments[key] for key in ("output_tensor", "output_tensors", "outputs", "output") if key in arguments]
    both = arguments.get("tensors")
    if kind == "barrier":
        return {**event, "inputs": [], "outputs": []}
    if both is not None:
        read = [] if kind == "receive" else [both]
        written = [] if kind in _WRITES_NOTHING else [both]
    return {**event, "inputs": _identified(read, identify), "outputs": _identified(written, identify)}


def _functional(kind: str, arguments: dict[str, Any], result: Any, identify: Identify) -> dict[str, Any]:
    named = arguments["group_name"]
    group = dist.distributed_c10d._resolve_process_group(named) if isinstance(named, str) else named
    ranks = dist.get_process_group_ranks(group)
    event: dict[str, Any] = {"communication": kind, "group": ranks, "communicator": group.group_name}
    if "reduce_op" in arguments:
        event["reduce"] = str(arguments["reduce_op"]).lower()
    if "src" in arguments:
        event["root"] = ranks[int(arguments["src"])]
    for key, name in (("input_split_sizes", "splits"), ("output_split_sizes", "receive_splits")):
        if arguments.get(key):
            event[name] = [int(size) for size in arguments[key]]
    read = arguments.get("inputs", arguments.get("input"))
    return {**event, "inputs": _identified([read], identify), "outputs": _identified([result], identify)}


def _identified(values: list[Any], identify: Identify) -> list[int]:
    return [identify(tensor) for tensor in tensors_in(values)]
