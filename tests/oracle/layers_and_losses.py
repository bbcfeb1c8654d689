"""Operators of layers and losses, from their definitions: normalisations, convolutions, masks and losses.

A call that torch would refuse raises ValueError. Gradients are those of the definitions, taken by imaginary steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from oracle import steps
from oracle.arguments import Array, Attributes, need, told_arguments
from oracle.moving import (
    along,
    cat,
    clamp,
    cumsum,
    either,
    expand,
    flip,
    index_select,
    log_sum_exp,
    narrow,
    repeat_interleave,
    split,
    stack,
    triangle,
    variance,
)

Function: TypeAlias = "Callable[[list[Any], Attributes], Array | tuple[Array, ...]]"

_STEP = 1e-30


def _affine(value: Array, operands: list[Any], shape: tuple[int, ...], wide: tuple[int, ...]) -> Array:
    for operand, combine in zip(operands, (np.multiply, np.add), strict=False):
        if operand is not None:
            need(operand.shape == shape, f"a weight of shape {operand.shape} for {shape}")
            value = combine(value, operand.reshape(wide))
    return value


def _standard(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    centred = x - x.mean(axis=axes, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(axis=axes, keepdims=True) + eps))


def _rows(values: list[Any], attributes: Attributes, default: float) -> tuple[list[Any], tuple[int, ...], float]:
    """The tensors of a normalisation, the shape that it normalises and its epsilon."""
    tensors, told = list(values), dict(attributes)
    if len(tensors) > 1 and isinstance(tensors[1], tuple | int):
        need("normalized_shape" not in told, "two shapes")
        shape = tensors.pop(1)
        told["normalized_shape"] = shape if isinstance(shape, tuple) else (shape,)
    if tensors and isinstance(tensors[-1], float):
        told["eps"] = tensors.pop()
    need(told.keys() <= {"normalized_shape", "eps"}, f"keywords {sorted(told)}")
    x = tensors[0]
    shape = told.get("normalized_shape")
    if shape is None:
        shape = next((own.shape for own in tensors[1:] if own is not None), x.shape[-1:])
    need(bool(shape) and tuple(shape) == x.shape[-len(shape) :], f"normalised shape {shape} of {x.shape}")
    eps = told.get("eps")
    return tensors, tuple(shape), default if eps is None else float(eps)


def _layer_norm(values: list[Any], attributes: Attributes) -> Array:
    tensors, shape, eps = _rows(values, attributes, 1e-5)
    return _affine(_standard(tensors[0], tuple(range(-len(shape), 0)), eps), tensors[1:], shape, shape)


def _rms_norm(values: list[Any], attributes: Attributes) -> Array:
    tensors, shape, eps = _rows(values, attributes, float(np.finfo(np.float32).eps))
    x, axes = tensors[0], tuple(range(-len(shape), 0))
    return _affine(x / np.sqrt((x**2).mean(axis=axes, keepdims=True) + eps), tensors[1:], shape, shape)


def _channels(x: Array) -> tuple[int, ...]:
    return (1, x.shape[1], *([1] * (x.ndim - 2)))


def _group_norm(values: list[Any], attributes: Attributes) -> Array:
    tensors, told = list(values), dict(attributes)
    if len(tensors) > 1 and isinstance(tensors[1], int):
        told["num_groups"] = tensors.pop(1)
    if len(tensors) > 3:
        told["eps"] = tensors.pop()
    weights = [*tensors[1:], *(told.pop(name) for name in ("weight", "bias") if name in told)]
    need(told.keys() <= {"num_groups", "eps"}, f"keywords {sorted(told)}")
    x, groups = tensors[0], told["num_groups"]
    need(x.ndim >= 2 and groups > 0 and x.shape[1] % groups == 0, f"{groups} groups of shape {x.shape}")
    found = _standard(x.reshape(x.shape[0], groups, -1), (2,), told.get("eps", 1e-5)).reshape(x.shape)
    return _affine(found, weights, x.shape[1:2], _channels(x))


def _batch_norm(values: list[Any], attributes: Attributes) -> Array:
    tensors = [value for value in values[:5] if value is None or isinstance(value, np.ndarray)]
    names = ("training", "momentum", "eps")
    told = {**dict(zip(names, values[len(tensors) :], strict=False)), **attributes}
    need(told.keys() <= {*names, "cudnn_enabled"}, f"keywords {sorted(told)}")
    x, mean, variance = tensors[:3]
    need(x.ndim >= 2, f"shape {x.shape}")
    axes, eps = (0, *range(2, x.ndim)), told.get("eps", 1e-5)
    if told.get("training", False):
        return _affine(_standard(x, axes, eps), tensors[3:], x.shape[1:2], _channels(x))
    need(mean.shape == variance.shape == x.shape[1:2], f"statistics of shape {mean.shape}")
    found = (x - mean.reshape(_channels(x))) / np.sqrt(variance.reshape(_channels(x)) + eps)
    return _affine(found, tensors[3:], x.shape[1:2], _channels(x))


def _convolve(dims: int, values: list[Any], attributes: Attributes) -> Array:
    tensors = [value for value in values[:3] if value is None or isinstance(value, np.ndarray)]
    names = ("stride", "padding", "dilation", "groups")
    told = {**dict(zip(names, values[len(tensors) :], strict=False)), **attributes}
    bias = told.pop("bias", tensors[2] if len(tensors) > 2 else None)
    need(told.keys() <= set(names), f"keywords {sorted(told)}")
    x, weight = tensors[:2]

    def each(name: str, default: int) -> tuple[int, ...]:
        given = told.get(name, default)
        return tuple(given) if isinstance(given, tuple) and len(given) == dims else (int(np.ravel(given)[0]),) * dims

    stride, padding, dilation, groups = each("stride", 1), each("padding", 0), each("dilation", 1), told.get("groups", 1)
    need(x.ndim == weight.ndim == dims + 2 and groups > 0, f"shapes {x.shape} and {weight.shape}")
    need(x.shape[1] == groups * weight.shape[1] and weight.shape[0] % groups == 0, f"{x.shape[1]} channels in {groups} groups")
    padded = np.pad(x, [(0, 0), (0, 0), *((n, n) for n in padding)])
    spans = [apart * (width - 1) + 1 for apart, width in zip(dilation, weight.shape[2:], strict=True)]
    sizes = [(n - span) // step + 1 for n, span, step in zip(padded.shape[2:], spans, stride, strict=True)]
    need(min(sizes) > 0, f"no positions of shape {x.shape}")
    out = np.zeros((x.shape[0], weight.shape[0], *sizes), dtype=np.result_type(x, weight))
    inner, outer = weight.shape[1], weight.shape[0] // groups
    for group, place in product(range(groups), product(*map(range, sizes))):
        corner = [at * step for at, step in zip(place, stride, strict=True)]
        window = [slice(low, low + span, apart) for low, span, apart in zip(corner, spans, dilation, strict=True)]
        seen = padded[(slice(None), slice(group * inner, (group + 1) * inner), *window)]
        own = weight[group * outer : (group + 1) * outer]
        out[(slice(None), slice(group * outer, (group + 1) * outer), *place)] = np.tensordot(
            seen, own, (list(range(1, x.ndim)), list(range(1, x.ndim)))
        )
    return _affine(out, [None, bias], weight.shape[:1], _channels(out))


def _where(values: list[Any], attributes: Attributes) -> Array:
    need(len(values) == 3 and not attributes, "where")
    return np.where(np.real(values[0]) != 0, values[1], values[2])


def _masked_fill(values: list[Any], attributes: Attributes) -> Array:
    told = told_arguments(values, attributes, "value")
    filled: Array = np.where(np.real(values[1]) != 0, told["value"], values[0])
    need(filled.shape == values[0].shape, "a mask that is wider")
    return filled


_LOSS = ("weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing")


def _log_chances(x: Array) -> Array:
    shifted = x - np.real(x).max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _classes(logarithms: Callable[[Array], Array], values: list[Any], attributes: Attributes) -> Array:
    """The loss of the target's class, and of all classes as far as labels are smoothed; ignored targets count nowhere."""
    told = told_arguments(values, attributes, *_LOSS)
    need(all(told.get(name) is None for name in ("weight", "size_average", "reduce")), "weights of classes")
    rows, target = logarithms(values[0]), np.real(values[1]).astype(int)
    need(rows.ndim == 2 and target.shape == rows.shape[:1], f"shapes {rows.shape} and {target.shape}")
    counted = target != told.get("ignore_index", -100)
    need(bool(np.all((target[counted] >= 0) & (target[counted] < rows.shape[1]))), "a target that is no class")
    picked = rows[np.arange(len(target)), np.where(counted, target, 0)]
    smooth = told.get("label_smoothing", 0.0)
    each = -((1 - smooth) * picked + smooth * rows.mean(axis=1)) * counted
    return _reduced(each, told.get("reduction", "mean"), float(counted.sum()))


def _reduced(each: Array, how: str, count: float) -> Array:
    need(how in ("none", "sum", "mean"), f"the reduction {how}")
    if how == "none":
        return each
    with np.errstate(all="ignore"):
        return np.reshape(each.sum() / (count if how == "mean" else 1.0), (1,))


def _errors(function: Callable[..., Array], values: list[Any], attributes: Attributes) -> Array:
    told = {"reduction": "mean", **attributes}
    own = {name: told.pop(name) for name in ("beta", "delta") if name in told}
    need(told.keys() == {"reduction"} and len(values) == 2 and values[0].shape == values[1].shape, "operands of a loss")
    each = function(*values, **own)
    if told["reduction"] == "batchmean":
        return np.reshape(each.sum() / each.shape[0], (1,))
    return _reduced(each, told["reduction"], each.size)


def _size(x: Array) -> Array:
    return np.where(np.real(x) < 0, -x, x)


def _smooth(x: Array, y: Array, beta: float = 1.0) -> Array:
    size = _size(x - y)
    return np.where(np.real(size) < beta, size * size / (2 * beta), size - beta / 2)


_FUNCTIONS: dict[str, Function] = {
    "sgd_step": steps.sgd,
    "momentum_step": steps.momentum,
    "adam_step": steps.adam,
    "adamw_step": partial(steps.adam, decoupled=True),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "conv1d": partial(_convolve, 1),
    "conv2d": partial(_convolve, 2),
    "where": _where,
    "masked_fill": _masked_fill,
    "cross_entropy": partial(_classes, _log_chances),
    "nll_loss": partial(_classes, lambda x: x),
    "mse_loss": partial(_errors, lambda x, y: (x - y) ** 2),
    "l1_loss": partial(_errors, lambda x, y: _size(x - y)),
    "smooth_l1_loss": partial(_errors, _smooth),
    "kl_div": partial(_errors, lambda x, y: y * (np.log(y) - x)),
    "expand": expand,
    "narrow": narrow,
    "split": split,
    "chunk": partial(split, chunks=True),
    "cat": cat,
    "stack": stack,
    "repeat_interleave": repeat_interleave,
    "logsumexp": partial(along, log_sum_exp),
    "var": partial(along, variance),
    "cumsum": cumsum,
    "flip": flip,
    "tril": partial(triangle, True),
    "triu": partial(triangle, False),
    "index_select": index_select,
    "clamp": clamp,
    "maximum": partial(either, True),
    "minimum": partial(either, False),
}

OF_NO_GRADIENT = {
    "batch_norm": (1, 2),
    "where": (0,),
    "masked_fill": (1,),
    "cross_entropy": (1,),
    "nll_loss": (1,),
    "index_select": (1, 2),
}
"""Operands of which no gradient is taken, by position."""


def _outputs(function: Function, values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    found = function(values, attributes)
    return found if isinstance(found, tuple) else (found,)


def _gradients(
    name: str, values: list[Any], outputs: tuple[Array, ...], given: list[Array], attributes: Attributes
) -> list[Array | None]:
    """The gradient of every element of every operand, each by an imaginary step."""
    found: list[Array | None] = []
    for position, value in enumerate(values):
        if not isinstance(value, np.ndarray) or position in OF_NO_GRADIENT.get(name, ()):
            found.append(None)
            continue
        gradient = np.zeros(value.shape)
        for place in np.ndindex(*value.shape):
            moved = value.astype(complex)
            moved[place] += 1j * _STEP
            changed = _outputs(_FUNCTIONS[name], [moved if i == position else own for i, own in enumerate(values)], attributes)
            gradient[place] = sum(float((np.imag(y) * g).sum()) for y, g in zip(changed, given, strict=True)) / _STEP
        found.append(gradient)
    return found


FORWARD = {name: partial(_outputs, function) for name, function in _FUNCTIONS.items()}
BACKWARD = {name: partial(_gradients, name) for name in _FUNCTIONS}
