"""Sizes that a repair may change, and the rules that depend on them."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from tvlint.ir.configuration import Configuration
from tvlint.rulebook.language.expression import Expression, name_of, names

WEIGHTS: Mapping[str, float] = {
    "tensor_model_parallel_size": 1.0,
    "pipeline_model_parallel_size": 1.0,
    "context_parallel_size": 1.0,
    "expert_model_parallel_size": 1.0,
    "expert_tensor_parallel_size": 1.0,
    "num_virtual_stages_per_pipeline_rank": 1.0,
    "num_layers_per_virtual_pipeline_stage": 1.0,
    "micro_batch_size": 1.0,
    "global_batch_size": 1.5,
    "train_batch_size": 1.5,
    "ppo_mini_batch_size": 1.5,
    "num_query_groups": 4.0,
    "num_attention_heads": 4.0,
    "num_layers": 4.0,
    "num_experts": 4.0,
    "moe_router_topk": 4.0,
    "hidden_size": 5.0,
    "ffn_hidden_size": 4.0,
    "moe_ffn_hidden_size": 4.0,
    "seq_length": 5.0,
    "kv_channels": 5.0,
}
"""How much of a change it is to double or halve a setting: how a model is split counts less than what the model is."""

MODEL = 4.0
"""From this weight on, a setting is about what the model is."""

LARGEST = 1 << 24
"""The largest size that is changed, or changed to."""


def adjustable(configuration: Configuration, name: str) -> bool:
    """Return whether the file gives a size that may be changed."""
    setting = configuration.settings.get(name)
    value = setting.value if setting is not None else None
    return name in WEIGHTS and isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST


def about_sizes(expression: Expression) -> bool:
    """Return whether a requirement is that a number divides another, or lies in a range that another sets."""
    match expression:
        case ast.Call(ast.Name("divides" | "exact")):
            return True
        case ast.Compare(left, [ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE() | ast.Eq() as order], [right]):
            both = bool(name_of(left)) and bool(name_of(right))
            computed = not _is_single(left) or not _is_single(right)
            return (both and not isinstance(order, ast.Eq)) or (computed and any(names(left)) and any(names(right)))
        case ast.BoolOp(_, parts):
            return any(map(about_sizes, parts))
        case ast.IfExp(_, then, otherwise):
            return about_sizes(then) or about_sizes(otherwise)
        case ast.UnaryOp(ast.Not(), operand):
            return about_sizes(operand)
    return False


def _is_single(expression: Expression) -> bool:
    """Return whether the expression is one name or constant."""
    return isinstance(expression, ast.Name | ast.Attribute | ast.Constant)
