"""Recognise attention by the operator table."""

from __future__ import annotations

from tvlint.ir.operators import Compute
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_kind


def is_attention(operator: Compute) -> bool:
    """Return whether the operator attends with queries, keys and values to the keys that it is given, and to no others."""
    return has_kind(operator.op, Trait.ATTENTION) and _has_three(operator)


def is_any_attention(operator: Compute) -> bool:
    """Return whether the operator attends with queries, keys and values, its own or those that it fetches from other ranks."""
    return has_kind(operator.op, Trait.ATTENTION, Trait.COMMUNICATING_ATTENTION) and _has_three(operator)


def _has_three(operator: Compute) -> bool:
    return len(operator.tensor_operands) >= 3
