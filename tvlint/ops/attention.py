"""Attention as one operator."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from tvlint.ir.plan import Literal
from tvlint.ops.field import Array, Field
from tvlint.ops.named_arrays import align, contract
from tvlint.ops.spec import ONE, Bound, Call, Names, OpSpec, UnsupportedError, stars


def _attention(call: Call) -> Bound:
    """Softmax of `q k^T` over the keys, times `v`: batch, heads and features of `v` map, keys and features of `q` are whole.

    Queries map unless `is_causal` counts them from the first; a mask is added to the scores, or is one of flags.
    """
    tensors = [operand for operand in call.inputs if operand != Literal(None)]
    call = Call(call.op, tuple(tensors), call.attributes, call.outputs).with_arguments("dropout_p", "is_causal", "scale")
    call.reject_unknown("attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    call.expect(3, 4)
    if call.attributes.get("attn_mask") is not None or call.attributes.get("enable_gqa"):
        raise UnsupportedError(f"`{call.op}` with `attn_mask` or `enable_gqa` as an attribute")
    if call.attributes.get("dropout_p", 0) != 0:
        raise UnsupportedError(f"`{call.op}` draws random numbers")
    query, key, value = (call.shape(i) for i in range(3))
    if not 2 <= len(query) == len(key) == len(value) or query[:-2] != key[:-2] or key[:-2] != value[:-2]:
        raise UnsupportedError(f"`{call.op}` of shapes {query}, {key} and {value}")
    if query[-1] != key[-1] or key[-2] != value[-2]:
        raise UnsupportedError(f"`{call.op}` of shapes {query}, {key} and {value}")
    batch = stars(len(query) - 2)
    operands: list[Names] = [(*batch, "l", "d"), (*batch, "s", "d"), (*batch, "s", "e")]
    scores, sizes = (*batch, "l", "s"), (*query[:-1], key[-2])
    if len(call.inputs) == 4:
        mask = call.shape(3)
        if len(mask) > len(scores):
            raise UnsupportedError(f"`{call.op}` with a mask of shape {mask}")
        tail = zip(mask, scores[len(scores) - len(mask) :], sizes[len(sizes) - len(mask) :], strict=True)
        operands.append(tuple(ONE if own == 1 != wide else name for own, name, wide in tail))
    causal, scale = bool(call.attributes.get("is_causal", False)), call.attributes.get("scale")
    if causal and len(call.inputs) == 4:
        raise UnsupportedError(f"`{call.op}` with a mask and `is_causal`")
    return Bound(
        tuple(operands),
        ((*batch, "l", "e"),),
        whole=frozenset({"s", "d", "l"} if causal else {"s", "d"}),
        linear=(frozenset({2}),),
        attributes=(causal, scale),
    )


def _attend(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    """With a mask of numbers; one of flags is not told apart here, and does the same to every dimension."""
    query, key, value = operands[:3]
    causal, scale = bound.attributes
    width = query.shape[-1]
    factor = scale if isinstance(scale, int | float) else 1 / sqrt(width)
    (*batch, rows, features), (*_, columns, _), (*_, _, _) = bound.operands[:3]
    scores: Names = (*batch, rows, columns)
    product = Bound(((*batch, rows, features), (*batch, columns, features)), (scores,))
    (logits,) = contract(product, (query, key), field)
    logits = field.number(factor) * logits
    if len(operands) == 4:
        logits = logits + align(operands[3], bound.operands[3], scores)
    powers = field.function("exp", logits)
    if causal:
        import numpy as np

        length, width = powers.shape[-2:]
        powers = field.where(np.tri(length, width) > 0, powers, field.number(0))
    weights = field.divide(powers, powers.sum(axis=-1, keepdims=True))
    return contract(Bound((scores, bound.operands[2]), bound.outputs), (weights, value), field)


SPECS = (
    OpSpec(
        "scaled-dot-product-attention",
        ("torch.nn.functional.scaled_dot_product_attention",),
        _attention,
        evaluate=_attend,
    ),
)
