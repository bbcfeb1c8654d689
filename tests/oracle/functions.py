"""What operators compute, in NumPy; written down independently of the operator table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from oracle.layers_and_losses import FORWARD as FURTHER

Array: TypeAlias = npt.NDArray[Any]
Attributes: TypeAlias = Mapping[str, Any]
Forward: TypeAlias = Callable[[list[Any], Attributes], tuple[Array, ...]]


class FailureError(Exception):
    """The plan cannot be executed as it stands: the run would end with an error."""


class UndefinedError(FailureError):
    """The numbers that were drawn leave the domain of an operator, and the loss is not a number."""


def rounded(value: Array, dtype: str) -> Array:
    """`value` as a tensor of `dtype` holds it; float32 and wider are taken for real numbers."""
    name = dtype.rsplit(".", 1)[-1]
    if name.startswith(("int", "uint", "bool")):
        return np.trunc(value)
    bits = {"bfloat16": 8, "float16": 11, "half": 11}.get(name)
    if bits is None:
        return value
    mantissa, exponent = np.frexp(value)
    return np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent)


def one_dim(attributes: Attributes, default: int = -1) -> int:
    dim = attributes.get("dim", default)
    return int(dim[0] if isinstance(dim, tuple) else dim)


def axes(value: Array, attributes: Attributes) -> tuple[int, ...] | None:
    dim = attributes.get("dim")
    if dim is None:
        return None
    return tuple(int(d) % value.ndim for d in (dim if isinstance(dim, tuple) else (dim,)))


def _linear(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    x, weight = values[:2]
    bias = values[2] if len(values) > 2 else None
    out = x @ weight.T
    return (out if bias is None else out + bias,)


def _matmul(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    return (np.asarray(values[0] @ values[1]),)


def _add(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    return (values[0] + attributes.get("alpha", 1) * values[1],)


def _sub(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    return (values[0] - attributes.get("alpha", 1) * values[1],)


def _mul(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    return (values[0] * values[1],)


def _div(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    if attributes.get("rounding_mode") is not None:
        raise FailureError("`div` with a rounding mode is not a real function")
    return (values[0] / values[1],)


def _pow(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    return (np.power(values[0], values[1]),)


def _sum(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    over = axes(values[0], attributes)
    if over is None:
        return (np.reshape(np.sum(values[0]), (1,)),)
    return (np.sum(values[0], axis=over, keepdims=bool(attributes.get("keepdim", False))),)


def _mean(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    over = axes(values[0], attributes)
    count = values[0].size if over is None else prod(values[0].shape[d] for d in over)
    return (_sum(values, attributes)[0] / count,)


def softmax(value: Array, dim: int) -> Array:
    shifted = np.exp(value - value.max(axis=dim, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=dim, keepdims=True))


def _softmax(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    out = softmax(values[0], one_dim(attributes))
    return (rounded(out, str(attributes["dtype"])) if attributes.get("dtype") else out,)


def _log_softmax(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    return (np.log(softmax(values[0], one_dim(attributes))),)


def sigmoid(value: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-value)))


GELU = np.sqrt(2.0 / np.pi)


def _gelu(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    x = values[0]
    return (0.5 * x * (1 + np.tanh(GELU * (x + 0.044715 * x**3))),)


def _to(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    return (rounded(values[0], str(attributes.get("dtype_or_device", attributes.get("dtype", "")))),)


def _multiref(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    return (values[0],) * int(attributes.get("times", 1))


def _transpose(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    return (np.swapaxes(values[0], int(attributes["dim0"]), int(attributes["dim1"])),)


def _permute(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    return (np.transpose(values[0], tuple(attributes["dims"])),)


def _view(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    size = attributes["size"] if "size" in attributes else attributes["shape"]
    return (np.reshape(values[0], tuple(size)),)


def embedding_rows(ids: Array, weight: Array, attributes: Attributes) -> tuple[Array, Array]:
    """The local row of every id, and which ids this shard has."""
    start, stop = int(attributes.get("start", 0)), int(attributes.get("stop", len(weight)))
    if stop - start != len(weight):
        raise FailureError(f"`embedding` of rows {start} to {stop} with a weight of {len(weight)}")
    inside = (ids >= start) & (ids < stop)
    rows = np.where(inside, ids - start, 0).astype(int)
    return rows, inside


def _embedding(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    rows, inside = embedding_rows(values[0], values[1], attributes)
    return (values[1][rows] * inside[..., None],)


def kept_of(values: Array, share: float) -> Array:
    """What dropout multiplies the elements with: what is drawn follows from their values, the same wherever they are."""

    def draw(value: float) -> float:
        digest = blake2b(f"{value:.6e}".encode(), digest_size=6).digest()
        return int.from_bytes(digest, "big") / 2**48

    drawn = np.vectorize(draw, otypes=[float])(values)
    return (drawn >= share) / (1 - share)


def dropped_share(values: list[Any], attributes: Attributes) -> float:
    """The share that a call of dropout drops."""
    given = dict(zip(("p", "training"), values[1:], strict=False)) | dict(attributes)
    share = given.get("p", 0.5) if given.get("training", True) else 0.0
    if not 0 <= share < 1:
        raise FailureError(f"a share of {share}")
    return float(share)


def _dropout(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    return (values[0] * kept_of(values[0], dropped_share(values, attributes)),)


def attended(values: list[Any], attributes: Attributes) -> tuple[Array, Array, Array, Array | None]:
    """Queries, keys and values, these with as many heads as the queries, and the mask if there is one."""
    query, key, value = values[:3]
    mask = next((own for own in values[3:] if isinstance(own, np.ndarray)), None)
    if attributes.get("enable_gqa"):
        times = query.shape[-3] // key.shape[-3]
        key, value = np.repeat(key, times, axis=-3), np.repeat(value, times, axis=-3)
    if query.shape[:-2] != key.shape[:-2]:
        raise FailureError(f"{query.shape[-3]} heads attend to {key.shape[-3]}")
    return query, key, value, mask


def scores_of(q: Array, k: Array, attributes: Attributes, mask: Array | None = None) -> Array:
    """The scores of all queries and keys, minus infinity where a causal query may not look."""
    found = q @ np.swapaxes(k, -1, -2) * (attributes.get("scale") or q.shape[-1] ** -0.5)
    found = found if mask is None else found + mask
    if not attributes.get("is_causal", False):
        return np.asarray(found)
    for start, stop, size in (("query_start", "query_stop", q.shape[-2]), ("key_start", "key_stop", k.shape[-2])):
        if start in attributes and attributes[stop] - attributes[start] != size:
            raise FailureError(f"positions {attributes[start]} to {attributes[stop]} of {size}")
    rows = attributes.get("query_start", 0) + np.arange(q.shape[-2])
    columns = attributes.get("key_start", 0) + np.arange(k.shape[-2])
    return np.where(columns[None, :] > rows[:, None], -np.inf, found)


def chances_of(scores: Array) -> tuple[Array, Array]:
    """The weights of the keys, zero where a query sees none, and the logarithm of the sum of the powers."""
    powers = np.exp(scores)
    total = powers.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return powers / np.where(total == 0, 1, total), np.log(total[..., 0])


def _attention(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    query, key, value, mask = attended(values, attributes)
    scores = scores_of(query, key, attributes, mask)
    chances, logarithm = chances_of(scores)
    return (chances * kept_of(scores, attributes.get("dropout_p", 0.0))) @ value, logarithm


def _merge(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    one, a, other, b = values
    total = np.logaddexp(a, b)
    return np.exp(a - total)[..., None] * one + np.exp(b - total)[..., None] * other, total


def rows_in_range(values: list[Any], attributes: Attributes) -> tuple[Array, Array]:
    """The column of every row's target in the slice that is held, and whether it is there."""
    start, stop = int(attributes["start"]), int(attributes["stop"])
    if stop - start != values[0].shape[1]:
        raise FailureError(f"columns {start} to {stop} of {values[0].shape[1]}")
    inside = (values[1] >= start) & (values[1] < stop)
    return np.where(inside, values[1] - start, 0).astype(int), inside


def _masked_gather(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    columns, inside = rows_in_range(values, attributes)
    return (values[0][np.arange(len(columns)), columns] * inside,)


def _amax(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    return (values[0].max(axis=axes(values[0], attributes), keepdims=bool(attributes.get("keepdim", False))),)


def _unsqueeze(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    return (np.expand_dims(values[0], int(attributes["dim"])),)


def places(chosen: Array, experts: int, capacity: int) -> list[tuple[int, int, int, int, int]]:
    """Group, token, choice, expert and place of every choice that finds a place, in the order of tokens."""
    found = []
    for group, rows in enumerate(chosen.astype(int)):
        taken = dict.fromkeys(range(experts), 0)
        for token, row in enumerate(rows):
            for choice, expert in enumerate(row):
                if expert not in taken:
                    raise FailureError(f"expert {expert} of {experts}")
                if taken[expert] < capacity:
                    found.append((group, token, choice, int(expert), taken[expert]))
                taken[expert] += 1
    return found


def _dispatch(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    tokens, chosen = values
    experts, capacity = int(attributes["experts"]), int(attributes["capacity"])
    out = np.zeros((len(tokens), experts, capacity, tokens.shape[-1]))
    for group, token, _, expert, place in places(chosen, experts, capacity):
        out[group, expert, place] = tokens[group, token]
    return (out,)


def _combine(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    held, chosen, weights = values
    out = np.zeros((*chosen.shape[:2], held.shape[-1]))
    for group, token, choice, expert, place in places(chosen, *held.shape[1:3]):
        out[group, token] += weights[group, token, choice] * held[group, expert, place]
    return (out,)


def _topk(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    chosen = np.argsort(-values[0], axis=-1, kind="stable")[..., : int(attributes["k"])]
    return np.take_along_axis(values[0], chosen, -1), chosen.astype(float)


def _einsum(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    return (np.einsum(str(attributes["equation"]).replace(" ", ""), *values),)


def rotate(x: Array, angles: Array, direction: int) -> Array:
    """Each pair (i, i + half) of the last dimension turned by the angle of its position."""
    half = x.shape[-1] // 2
    if angles.shape != (x.shape[1], half):
        raise FailureError(f"rotary angles of shape {angles.shape} for {x.shape}")
    cos, sin = np.cos(angles)[None, :, None, :], direction * np.sin(angles)[None, :, None, :]
    return np.concatenate([x[..., :half] * cos - x[..., half:] * sin, x[..., :half] * sin + x[..., half:] * cos], -1)


def _rotary(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    return rotate(values[0], values[2], 1), rotate(values[1], values[2], 1)


def _create_mask(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    length = values[0].shape[1]
    return (np.where(np.tri(length) > 0, 0.0, -2.0)[None, None],)


def _apply_mask(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    if values[0].shape[-2:] != values[1].shape[-2:]:
        raise FailureError(f"a mask of shape {values[1].shape} for {values[0].shape}")
    return (values[0] + values[1],)


def gate(x: Array, weight: Array, attributes: Attributes) -> tuple[Array, Array, float]:
    """The scores of all experts, the chosen experts of every row, and the scale of their weights."""
    scores = sigmoid(x @ weight.T)
    chosen = np.argsort(-scores, axis=1, kind="stable")[:, : int(attributes["topk"])]
    opaque = float(attributes.get("n_groups") or 0) + 0.1 * float(attributes.get("topk_groups") or 0)
    opaque += {"sigmoid": 0.0, "softmax": 0.5}.get(str(attributes.get("score_func")), 0.7)
    return scores, chosen, float(attributes.get("route_scale", 1.0)) * (1.0 + opaque / 100.0)


def _gate(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    scores, chosen, scale = gate(values[0], values[1], attributes)
    return scale * np.take_along_axis(scores, chosen, 1), chosen.astype(float)


def experts(attributes: Attributes, weight: Array) -> tuple[range, float]:
    """The experts that the weights hold, and an opaque factor for the attribute that has no other meaning here."""
    held = range(int(attributes["local_expert_start"]), int(attributes["local_expert_end"]))
    if len(held) != len(weight):
        raise FailureError(f"experts {held} with weights of {len(weight)}")
    return held, 1.0 + int(attributes["n_routed_experts"]) / 1000.0


def _grouped(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    x, weights, chosen, first, second, third = values
    out = np.zeros_like(x)
    held, factor = experts(attributes, first)
    for local, expert in enumerate(held):
        share = (weights * (chosen == expert)).sum(axis=1, keepdims=True)
        a = x @ first[local].T
        out = out + factor * share * ((a * sigmoid(a) * (x @ second[local].T)) @ third[local].T)
    return (out,)


def _elementwise(function: Callable[[Any], Any]) -> Forward:
    return lambda values, attributes: (function(values[0]),)


_SAME = _elementwise(lambda x: x)

FORWARD: dict[str, Forward] = {
    "linear": _linear,
    "dropout": _dropout,
    "matmul": _matmul,
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "sum": _sum,
    "mean": _mean,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "rsqrt": _elementwise(lambda x: 1 / np.sqrt(x)),
    "sqrt": _elementwise(np.sqrt),
    "exp": _elementwise(np.exp),
    "log": _elementwise(np.log),
    "neg": _elementwise(np.negative),
    "silu": _elementwise(lambda x: x * sigmoid(x)),
    "gelu": _gelu,
    "relu": _elementwise(lambda x: np.maximum(x, 0)),
    "sigmoid": _elementwise(sigmoid),
    "tanh": _elementwise(np.tanh),
    "float": _SAME,
    "contiguous": _SAME,
    "identity": _SAME,
    "clone": _SAME,
    "to": _to,
    "multiref": _multiref,
    "transpose": _transpose,
    "permute": _permute,
    "view": _view,
    "reshape": _view,
    "embedding": _embedding,
    "apply_rotary_emb": _rotary,
    "create_mask": _create_mask,
    "apply_mask": _apply_mask,
    "gate_fw": _gate,
    "attention": _attention,
    "scaled_dot_product_attention": lambda values, attributes: _attention(values, attributes)[:1],
    "merge_by_log_sum_exp": _merge,
    "masked_gather": _masked_gather,
    "amax": _amax,
    "unsqueeze": _unsqueeze,
    "moe_dispatch": _dispatch,
    "moe_combine": _combine,
    "topk": _topk,
    "einsum": _einsum,
    "nnscaler_moe_gmm": _grouped,
    **FURTHER,
}
"""By the last part of the emitted function's name."""


KEYWORDS = frozenset(
    {
        "alpha",
        "bias",
        "capacity",
        "dim",
        "dim0",
        "dim1",
        "dims",
        "dtype",
        "dtype_or_device",
        "enable_gqa",
        "eps",
        "equation",
        "experts",
        "inplace",
        "is_causal",
        "keepdim",
        "k",
        "key_start",
        "key_stop",
        "local_expert_end",
        "local_expert_start",
        "n_groups",
        "n_routed_experts",
        "dropout_p",
        "p",
        "padding_idx",
        "query_start",
        "query_stop",
        "reduction",
        "rounding_mode",
        "route_scale",
        "scale",
        "score_func",
        "shape",
        "size",
        "start",
        "stop",
        "times",
        "topk",
        "topk_groups",
        "training",
        "_stacklevel",
    }
)
"""Every keyword that some operator knows; any other one makes a call fail."""


def forward(op: str, values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    """The outputs of operator `op`; raises FailureError where running it would raise."""
    function = FORWARD.get(op.rsplit(".", 1)[-1])
    if function is None:
        raise FailureError(f"no operator `{op}`")
    if op.rsplit(".", 1)[-1] not in FURTHER and not attributes.keys() <= KEYWORDS:
        raise FailureError(f"`{op}` has no keyword {sorted(attributes.keys() - KEYWORDS)}")
    try:
        return function(values, attributes)
    except (ValueError, IndexError, TypeError, KeyError, AttributeError) as error:
        raise FailureError(f"`{op}`: {error}") from error
