"""Attention as one operator, and the merge of its results over different keys."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from tvlint.ir.operators import Literal
from tvlint.ops.families.selecting import kept, share_of
from tvlint.ops.field import Array, Field
from tvlint.ops.named_arrays import align, contract
from tvlint.ops.spec import (
    DRAWS,
    ONE,
    Bound,
    Call,
    Drawn,
    Family,
    MisfitError,
    Names,
    OpSpec,
    Trait,
    UnsupportedError,
    having,
    stars,
)

_POSITIONS = {"l": ("query_start", "query_stop"), "s": ("key_start", "key_stop")}
"""The attributes that state which queries and keys of the sequence a call holds."""


def _attention(call: Call) -> Bound:
    """Softmax of `q k^T` over the keys, times `v`: batch, heads and features of `v` map, keys and features of `q` are whole.

    Queries map unless `is_causal` counts them from the first; a mask is added to the scores, or is one of flags. A causal call
    that states its positions counts from those, so that queries map. `attention` gives the log-sum-exp of the scores as well:
    its results over some of the keys can be merged, where it states which if it is causal.
    """
    tensors = [operand for operand in call.inputs if operand != Literal(None)]
    call = Call(call.op, tuple(tensors), call.attributes, call.outputs).with_arguments("dropout_p", "is_causal", "scale")
    places = [name for pair in _POSITIONS.values() for name in pair]
    call.reject_unknown("attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa", *places)
    call.expect(3, 4)
    if call.attributes.get("attn_mask") is not None:
        raise UnsupportedError(f"`{call.op}` with `attn_mask` as an attribute")
    share = call.attributes.get("dropout_p", 0)
    query, key, value = (call.shape(i) for i in range(3))
    if call.attributes.get("enable_gqa") is True and len(query) < 3:
        raise MisfitError(f"`{call.op}` with `enable_gqa` of shape {query}", "there has to be a dimension of heads")
    if shares_heads(call):
        raise UnsupportedError(f"`{call.op}` with `enable_gqa`, whose heads the annotation cannot tell")
    said = f"`{call.op}` of shapes {query}, {key} and {value}"
    if 2 <= len(query) == len(key) == len(value):
        if query[-1] != key[-1] or key[-2] != value[-2]:
            expected = "queries and keys have to have as many features, and there have to be as many values as keys"
            raise MisfitError(said, expected)
        if any(len({*sizes} - {1}) > 1 for sizes in zip(query[:-2], key[:-2], value[:-2], strict=True)):
            raise MisfitError(said, "queries, keys and values have to have the same batch and heads")
    if not 2 <= len(query) == len(key) == len(value) or query[:-2] != key[:-2] or key[:-2] != value[:-2]:
        raise UnsupportedError(said)
    batch = stars(len(query) - 2)
    operands: list[Names] = [(*batch, "l", "d"), (*batch, "s", "d"), (*batch, "s", "e")]
    scores, sizes = (*batch, "l", "s"), (*query[:-1], key[-2])
    if len(call.inputs) == 4:
        mask = call.shape(3)
        if len(mask) > len(scores):
            raise UnsupportedError(f"`{call.op}` with a mask of shape {mask}")
        tail = zip(mask, scores[len(scores) - len(mask) :], sizes[len(sizes) - len(mask) :], strict=True)
        operands.append(tuple(ONE if size == 1 != wide else name for size, name, wide in tail))
    causal, scale = call.flag("is_causal"), call.attributes.get("scale")
    both = call.op.rsplit(".", 1)[-1] == "attention"
    if len(call.inputs) == 4 and causal:
        raise UnsupportedError(f"`{call.op}` with a mask and `is_causal`")
    ranges = _stated(call)
    splits = {"l": "maps"} if causal and "l" in ranges else {}
    if both and ("s" in ranges or not causal):
        splits["s"] = "merge"
    draws = None if share == 0 else Drawn(scores, (0, 1), (frozenset({2}),))
    if draws is not None and both:
        raise UnsupportedError(f"`{call.op}` draws random numbers and gives log-sum-exps")
    return Bound(
        tuple(operands),
        ((*batch, "l", "e"), (*batch, "l")) if both else ((*batch, "l", "e"),),
        whole=frozenset({"s", "d", "l"} if causal else {"s", "d"}),
        linear=(frozenset({2}),) if draws is None else (),
        attributes=(causal, scale) if draws is None else (causal, scale, share_of(call, share)),
        ranges=ranges,
        row_wise={0: frozenset(range(len(operands))), 1: frozenset(range(len(operands))) - {2}} if both else {},
        splits=splits,
        masked=("l", "s") if causal else None,
        draws=draws,
        assumption="" if draws is None else DRAWS,
    )


def shares_heads(call: Call) -> bool:
    """Return whether several heads of queries of a call of attention share one of keys and values."""
    return call.attributes.get("enable_gqa") is True and call.shape(0)[-3:-2] != call.shape(1)[-3:-2]


def _stated(call: Call) -> dict[str, tuple[int, int]]:
    """Return the positions of queries and keys, as far as the call states them."""
    found = {}
    for name, attributes in _POSITIONS.items():
        start, stop = (call.attributes.get(attribute) for attribute in attributes)
        if start is None and stop is None:
            continue
        if not isinstance(start, int) or not isinstance(stop, int) or isinstance(start, bool) or not 0 <= start < stop:
            raise UnsupportedError(f"`{call.op}` with positions {start} to {stop}")
        found[name] = (start, stop)
    return found


def _attend(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    """With a mask of numbers; one of flags is not distinguished here, and does the same to every dimension.

    A query that sees no key gets zero, and the logarithm of zero.
    """
    import numpy as np

    query, key, value = operands[:3]
    causal, scale, *dropped = bound.attributes
    drawn = operands[-1] if dropped else None
    factor = scale if isinstance(scale, int | float) else 1 / sqrt(query.shape[-1])
    (*batch, rows, features), (*_, columns, _), (*_, _, _) = bound.operands[:3]
    scores: Names = (*batch, rows, columns)
    product = Bound(((*batch, rows, features), (*batch, columns, features)), (scores,))
    (logits,) = contract(product, (query, key), field)
    logits = field.number(factor) * logits
    if len(operands) == (4 if drawn is None else 5):
        logits = logits + align(operands[3], bound.operands[3], scores)
    powers = field.function("exp", logits)
    length, width = powers.shape[-2:]
    seen: Array = np.ones((length, width), dtype=bool)
    if causal:
        first, last = bound.ranges.get("l", (0, 0))[0], bound.ranges.get("s", (0, 0))[0]
        seen = (last + np.arange(width))[None, :] <= (first + np.arange(length))[:, None]
        powers = field.where(seen, powers, field.number(0))
    total = powers.sum(axis=-1, keepdims=True)
    some = np.asarray(seen.any(axis=-1, keepdims=True))
    divisor = field.where(field.equal(total, 0) if len(operands) > 3 else np.logical_not(some), field.number(1), total)
    if drawn is not None:
        (share,) = dropped
        if not isinstance(share, float):
            raise UnsupportedError(f"a share of {share}")
        powers = kept(powers, drawn, share, field)
    (weighted,) = contract(Bound((scores, bound.operands[2]), bound.outputs[:1]), (powers, value), field)
    result = field.divide(weighted, divisor)
    if len(bound.outputs) == 1:
        return (result,)
    with np.errstate(divide="ignore"):
        return result, field.function("log", total[..., 0])


def _merge(call: Call) -> Bound:
    """Return the result of `attention` over the keys of both, of two results and their log-sum-exps, and its log-sum-exp."""
    call.reject_unknown()
    call.expect(4)
    one, other = call.shape(0), call.shape(1)
    if len(one) < 2 or other != one[:-1] or (call.shape(2), call.shape(3)) != (one, other) or len(call.outputs) > 2:
        raise UnsupportedError(f"`{call.op}` of shapes {', '.join(str(call.shape(i)) for i in range(4))}")
    rows = stars(len(other))
    return Bound(
        ((*rows, "e"), rows, (*rows, "e"), rows),
        ((*rows, "e"), rows)[: len(call.outputs) or 2],
        linear=(frozenset({0, 2}),),
        row_wise={0: frozenset({0, 1, 2, 3}), 1: frozenset({1, 3})} if len(call.outputs) != 1 else {},
    )


def _merged(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    """(e^a x + e^b y) / (e^a + e^b), and log(e^a + e^b)."""
    import numpy as np

    one, array, other, second = operands
    left, right = field.function("exp", array), field.function("exp", second)
    total = left + right
    none = field.equal(total, 0)
    above = left[..., None] * one + right[..., None] * other
    result = field.divide(above, field.where(none, field.number(1), total)[..., None])
    with np.errstate(divide="ignore"):
        return (result, field.function("log", total))[: len(bound.outputs)]


SPECS = (
    OpSpec(
        "scaled-dot-product-attention",
        ("torch.nn.functional.scaled_dot_product_attention", "attention"),
        _attention,
        evaluate=_attend,
        may_draw=True,
        range_attributes=_POSITIONS,
        traits=frozenset({Trait.ATTENTION, Trait.CONTRACTION}),
        sequence=-2,
    ),
    *having(
        (Trait.LOG_SUM_EXP_MERGE,),
        OpSpec("merge-by-log-sum-exp", ("merge_by_log_sum_exp",), _merge, Family.MERGE, evaluate=_merged),
    ),
)
