"""What can be said of operators that the table does not annotate for this use: which dimension they must have whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvlint.analyses.placed import On
from tvlint.ir.placement import Partial, Shard
from tvlint.ir.plan import Compute

_LAST_DIM_WHOLE = {
    "cross_entropy": "loss-over-shards",
    "nll_loss": "loss-over-shards",
    "layer_norm": "norm-over-shards",
    "rms_norm": "norm-over-shards",
    "layernorm": "norm-over-shards",
    "rmsnorm": "norm-over-shards",
}
_ATTENTION_SEQUENCE = {"scaled_dot_product_attention": -2, "flash_attn_func": 1, "flash_attention": 1}
_SPLITTING = ("chunk", "split", "tensor_split", "unbind")


def over_shards(operator: Compute, operands: Sequence[On], ranks: Sequence[int]) -> tuple[str, int]:
    """The rule that the operator breaks on one axis, and the operand concerned; an empty rule: none that is known."""
    name = operator.op.rsplit(".", 1)[-1].replace("-", "_")
    if not operands or not ranks:
        return "", 0
    first, rank = operands[0], ranks[0]
    if not isinstance(first, Shard) or not rank:
        return "", 0
    dim = first.dim % rank
    if name in _LAST_DIM_WHOLE and dim == rank - 1 and (rank == 2 or "loss" not in _LAST_DIM_WHOLE[name]):
        return _LAST_DIM_WHOLE[name], 0
    if name in _ATTENTION_SEQUENCE and len(operands) > 1 and rank == 4 and dim == _ATTENTION_SEQUENCE[name] % rank:
        keys = operands[1]
        return ("attention-over-local-keys", 1) if isinstance(keys, Shard) and keys.dim % rank == dim else ("", 0)
    if name in _SPLITTING and not first.parts:
        along = operator.attributes.get("dim", 0)
        if isinstance(along, int) and along % rank == dim and dim == rank - 1:
            return "packed-split-across-shards", 0
    return "", 0


def greatest(operator: Compute, operands: Sequence[Mapping[str, On]], axes: Sequence[str]) -> dict[str, On]:
    """How the greatest magnitude of a tensor lies, for operators that take it under names of their own."""
    name = operator.op.rsplit(".", 1)[-1].lower().replace("-", "_")
    if "amax" not in name and "absmax" not in name.replace("_", "") and "maxabs" not in name.replace("_", ""):
        return {}
    if len(operands) != 1 or operator.attributes.get("dim") is not None or len(operator.outputs) != 1:
        return {}
    return {axis: Partial("max") if isinstance(operands[0].get(axis), Shard) else operands[0].get(axis) for axis in axes}
