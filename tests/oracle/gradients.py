"""The vector-Jacobian products of the operators in `functions`; each is compared with finite differences by the tests."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

import numpy as np

from oracle.functions import (
    FORWARD,
    GELU,
    Array,
    Attributes,
    FailureError,
    attended,
    axes,
    chances_of,
    dropped_share,
    embedding_rows,
    experts,
    gate,
    kept_of,
    one_dim,
    places,
    rotate,
    rows_in_range,
    scores_of,
    sigmoid,
    softmax,
)
from oracle.layers_and_losses import BACKWARD as FURTHER

Gradients: TypeAlias = "list[Array | None]"
"""One per operand; None for constants and operands that no gradient reaches."""

Rule: TypeAlias = Callable[[list[Any], tuple[Array, ...], list[Array], Attributes], Gradients]


def folded(gradient: Array, operand: Any) -> Array | None:
    """`gradient` summed over the dimensions along which `operand` was broadcast."""
    if not isinstance(operand, np.ndarray):
        return None
    gradient = np.asarray(gradient.sum(axis=tuple(range(gradient.ndim - operand.ndim))))
    repeated = tuple(d for d in range(operand.ndim) if operand.shape[d] == 1 and gradient.shape[d] != 1)
    return np.asarray(gradient.sum(axis=repeated, keepdims=True).reshape(operand.shape))


def _linear(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    rows = g[0].reshape(-1, g[0].shape[-1])
    found: Gradients = [g[0] @ v[1], rows.T @ v[0].reshape(-1, v[0].shape[-1])]
    if len(v) > 2:
        found.append(None if v[2] is None else rows.sum(axis=0))
    return found


def _matmul(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    x, y = v
    if x.ndim == 1 or y.ndim == 1:
        raise FailureError("the gradient of `matmul` with a vector is not written down")
    return [folded(g[0] @ np.swapaxes(y, -1, -2), x), folded(np.swapaxes(x, -1, -2) @ g[0], y)]


def _add(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    return [folded(g[0], v[0]), folded(a.get("alpha", 1) * g[0], v[1])]


def _sub(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    return [folded(g[0], v[0]), folded(-a.get("alpha", 1) * g[0], v[1])]


def _mul(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    return [folded(g[0] * v[1], v[0]), folded(g[0] * v[0], v[1])]


def _div(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    return [folded(g[0] / v[1], v[0]), folded(-g[0] * v[0] / np.square(v[1]), v[1])]


def _pow(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    base, exponent = v
    to_exponent = None
    if isinstance(exponent, np.ndarray):
        to_exponent = folded(g[0] * out[0] * np.log(base), exponent)
    return [folded(g[0] * exponent * np.power(base, exponent - 1), base), to_exponent]


def _sum(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    over = axes(v[0], a)
    if over is None:
        return [np.broadcast_to(g[0].reshape(()), v[0].shape).copy()]
    kept = tuple(1 if d in over else n for d, n in enumerate(v[0].shape))
    return [np.broadcast_to(g[0].reshape(kept), v[0].shape).copy()]


def _mean(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    over = axes(v[0], a)
    count = v[0].size if over is None else prod(v[0].shape[d] for d in over)
    spread = _sum(v, out, g, a)[0]
    return [None if spread is None else spread / count]


def _softmax(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    y = softmax(v[0], one_dim(a))
    return [y * (g[0] - (g[0] * y).sum(axis=one_dim(a), keepdims=True))]


def _log_softmax(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    return [g[0] - softmax(v[0], one_dim(a)) * g[0].sum(axis=one_dim(a), keepdims=True)]


def _gelu_slope(x: Array) -> Array:
    inner = np.tanh(GELU * (x + 0.044715 * x**3))
    return np.asarray(0.5 * (1 + inner) + 0.5 * x * (1 - inner**2) * GELU * (1 + 3 * 0.044715 * x**2))


def silu_slope(x: Array) -> Array:
    s = sigmoid(x)
    return np.asarray(s * (1 + x * (1 - s)))


def _slope(function: Callable[[Any, Any], Any]) -> Rule:
    return lambda v, out, g, a: [g[0] * function(v[0], out[0])]


def _multiref(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    return [np.sum(np.stack(g), axis=0)]


def _transpose(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    return [np.swapaxes(g[0], int(a["dim0"]), int(a["dim1"]))]


def _permute(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    return [np.transpose(g[0], tuple(int(d) for d in np.argsort(a["dims"])))]


def _view(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    return [g[0].reshape(v[0].shape)]


def _embedding(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    rows, inside = embedding_rows(v[0], v[1], a)
    padding = a.get("padding_idx")
    if padding is not None:
        inside = inside & (v[0] != padding)
    to_weight = np.zeros_like(v[1])
    np.add.at(to_weight, rows, g[0] * inside[..., None])
    return [None, to_weight]


def _attention(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    query, key, value, mask = attended(v, a)
    scores = scores_of(query, key, a, mask)
    chances, _ = chances_of(scores)
    kept = kept_of(scores, a.get("dropout_p", 0.0))
    scale = a.get("scale") or v[0].shape[-1] ** -0.5
    inner = (g[0] @ np.swapaxes(value, -1, -2)) * kept
    to_scores = chances * (inner - (chances * inner).sum(axis=-1, keepdims=True))
    if len(g) > 1:
        to_scores = to_scores + chances * g[1][..., None]
    to_key = np.swapaxes(to_scores, -1, -2) @ query * scale
    to_value = np.swapaxes(chances * kept, -1, -2) @ g[0]
    if key.shape != v[1].shape:
        times = key.shape[-3] // v[1].shape[-3]
        grouped = [(*x.shape[:-3], x.shape[-3] // times, times, *x.shape[-2:]) for x in (to_key, to_value)]
        to_key, to_value = (x.reshape(s).sum(axis=-3) for x, s in zip((to_key, to_value), grouped, strict=True))
    found: Gradients = [to_scores @ key * scale, to_key, to_value]
    return [*found, *(None if mask is None else folded(to_scores, mask) for _ in v[3:])]


def _dropout(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    return [g[0] * kept_of(v[0], dropped_share(v, a)), *(None for _ in v[1:])]


def _merge(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    found: Gradients = []
    to_total = g[1] if len(g) > 1 else np.zeros_like(v[1])
    for one, logarithm in ((v[0], v[1]), (v[2], v[3])):
        share = np.exp(logarithm - np.logaddexp(v[1], v[3]))
        through = ((one - out[0]) * g[0]).sum(axis=-1)
        found += [share[..., None] * g[0], share * (through + to_total)]
    return found


def _masked_gather(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    columns, inside = rows_in_range(v, a)
    to_rows = np.zeros_like(v[0])
    to_rows[np.arange(len(columns)), columns] = g[0] * inside
    return [to_rows, None]


def _amax(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    over = axes(v[0], a)
    hit = v[0] == v[0].max(axis=over, keepdims=True)
    wide = g[0] if a.get("keepdim") or over is None else np.expand_dims(g[0], over)
    return [wide * hit / hit.sum(axis=over, keepdims=True)]


def _dispatch(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    to_tokens = np.zeros_like(v[0])
    for group, token, _, expert, place in places(v[1], int(a["experts"]), int(a["capacity"])):
        to_tokens[group, token] += g[0][group, expert, place]
    return [to_tokens, None]


def _combine(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    to_held, to_weights = np.zeros_like(v[0]), np.zeros_like(v[2])
    for group, token, choice, expert, place in places(v[1], *v[0].shape[1:3]):
        to_held[group, expert, place] = v[2][group, token, choice] * g[0][group, token]
        to_weights[group, token, choice] = (v[0][group, expert, place] * g[0][group, token]).sum()
    return [to_held, None, to_weights]


def _topk(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    to_scores = np.zeros_like(v[0])
    np.put_along_axis(to_scores, out[1].astype(int), g[0], -1)
    return [to_scores]


def _einsum(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    left, right = str(a["equation"]).replace(" ", "").split("->")
    names = left.split(",")
    found: Gradients = []
    for i, own in enumerate(names):
        others = [(name, x) for j, (name, x) in enumerate(zip(names, v, strict=True)) if j != i]
        ones = [(name, np.ones(v[i].shape[own.index(name)])) for name in own]
        terms = [(right, g[0]), *others, *ones]
        found.append(np.einsum(",".join(name for name, _ in terms) + f"->{own}", *(x for _, x in terms)))
    return found


def _rotary(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    return [rotate(g[0], v[2], -1), rotate(g[1], v[2], -1), None]


def _gate(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    scores, chosen, scale = gate(v[0], v[1], a)
    to_scores = np.zeros_like(scores)
    np.put_along_axis(to_scores, chosen, scale * g[0], 1)
    inner = to_scores * scores * (1 - scores)
    return [inner @ v[1], inner.T @ v[0]]


def _grouped(v: list[Any], out: tuple[Array, ...], g: list[Array], a: Attributes) -> Gradients:
    x, weights, chosen, first, second, third = v
    to = [np.zeros_like(each) for each in (x, weights, first, second, third)]
    held, factor = experts(a, first)
    for local, expert in enumerate(held):
        here = chosen == expert
        share = factor * (weights * here).sum(axis=1, keepdims=True)
        one, two = x @ first[local].T, x @ second[local].T
        hidden = one * sigmoid(one) * two
        back = g[0] @ third[local]
        to[1] += factor * here * (hidden * back).sum(axis=1, keepdims=True)
        to_one, to_two = share * back * two * silu_slope(one), share * back * one * sigmoid(one)
        to[0] += to_one @ first[local] + to_two @ second[local]
        to[2][local], to[3][local] = to_one.T @ x, to_two.T @ x
        to[4][local] = (share * g[0]).T @ hidden
    return [to[0], to[1], None, to[2], to[3], to[4]]


_SAME = _slope(lambda x, y: 1.0)

BACKWARD: dict[str, Rule] = {
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
    "rsqrt": _slope(lambda x, y: -0.5 * y**3),
    "sqrt": _slope(lambda x, y: 0.5 / y),
    "exp": _slope(lambda x, y: y),
    "log": _slope(lambda x, y: 1 / x),
    "neg": _slope(lambda x, y: -1.0),
    "silu": _slope(lambda x, y: silu_slope(x)),
    "gelu": _slope(lambda x, y: _gelu_slope(x)),
    "relu": _slope(lambda x, y: (x > 0) * 1.0),
    "sigmoid": _slope(lambda x, y: y * (1 - y)),
    "tanh": _slope(lambda x, y: 1 - y**2),
    "float": _SAME,
    "contiguous": _SAME,
    "identity": _SAME,
    "clone": _SAME,
    "to": _SAME,
    "multiref": _multiref,
    "transpose": _transpose,
    "permute": _permute,
    "view": _view,
    "reshape": _view,
    "embedding": _embedding,
    "apply_rotary_emb": _rotary,
    "create_mask": lambda v, out, g, a: [None] * len(v),
    "apply_mask": lambda v, out, g, a: [g[0], None],
    "gate_fw": _gate,
    "attention": _attention,
    "scaled_dot_product_attention": _attention,
    "merge_by_log_sum_exp": _merge,
    "masked_gather": _masked_gather,
    "amax": _amax,
    "unsqueeze": lambda v, out, g, a: [g[0].reshape(v[0].shape)],
    "moe_dispatch": _dispatch,
    "moe_combine": _combine,
    "topk": _topk,
    "einsum": _einsum,
    "nnscaler_moe_gmm": _grouped,
    **FURTHER,
}
assert BACKWARD.keys() == FORWARD.keys()


def backward(
    op: str, values: list[Any], outputs: tuple[Array, ...], gradients: list[Array], attributes: Attributes
) -> Gradients:
    """The gradient of each operand of `op`, given those of its outputs."""
    shapes = zip(gradients, outputs, strict=True)
    gradients = [own.reshape(made.shape) if {own.shape, made.shape} <= {(), (1,)} else own for own, made in shapes]
    for output, gradient in zip(outputs, gradients, strict=True):
        if gradient.shape != output.shape:
            raise FailureError(f"`{op}`: a gradient of shape {gradient.shape} for an output of shape {output.shape}")
    try:
        return BACKWARD[op.rsplit(".", 1)[-1]](values, outputs, gradients, attributes)
    except (ValueError, IndexError, TypeError, KeyError, AttributeError) as error:
        raise FailureError(f"gradient of `{op}`: {error}") from error
