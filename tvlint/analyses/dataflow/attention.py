"""Recognise attention operators of any framework."""

from __future__ import annotations

from functools import cache

from tvlint.ir.operators import Compute


def is_attention(operator: Compute) -> bool:
    """Return whether the operator attends with queries, keys and values to a block of keys, by its name and operands."""
    return _names_attention(operator.op) and sum(isinstance(operand, str) for operand in operator.inputs) >= 3


@cache
def _names_attention(op: str) -> bool:
    name = op.rsplit(".", 1)[-1].lower().replace("-", "_")
    if any(word in name for word in ("merge", "combine", "lse", "log_sum", "rescale", "mask", "norm", "backward")):
        return False
    return "attention" in name or "attn" in name or name.startswith("flash") or name == "sdpa"
