"""Which operators attend, whatever framework they come from."""

from __future__ import annotations

from tvlint.ir.plan import Compute


def is_attention(operator: Compute) -> bool:
    """Whether the operator attends with queries, keys and values to a block of keys, by its name and operands."""
    name = operator.op.rsplit(".", 1)[-1].lower().replace("-", "_")
    if any(word in name for word in ("merge", "combine", "lse", "log_sum", "rescale", "mask", "norm", "backward")):
        return False
    named = "attention" in name or "attn" in name or name.startswith("flash") or name == "sdpa"
    return named and sum(isinstance(operand, str) for operand in operator.inputs) >= 3
