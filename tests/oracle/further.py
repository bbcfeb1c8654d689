"""Further operators, from their definitions: normalisations, convolutions, masks, losses, and what moves elements.

A call that torch would refuse raises ValueError. Gradients are those of the definitions, taken by imaginary steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Attributes: TypeAlias = Mapping[str, Any]
Function: TypeAlias = "Callable[[list[Any], Attributes], Array | tuple[Array, ...]]"

_STEP = 1e-30


def _need(holds: bool, text: str) -> None:
    if not holds:
        raise ValueError(text)


def _told(values: list[Any], attributes: Attributes, *names: str) -> dict[str, Any]:
    """What follows the tensors, by name; together with what is given by name."""
    rest = values[next((i for i, value in enumerate(values) if not isinstance(value, np.ndarray)), len(values)) :]
    if len(names) == 1 and len(rest) > 1:
        rest = [tuple(rest)]
    _need(len(rest) <= len(names), f"{len(rest)} constants")
    given = dict(zip(names, rest, strict=False))
    _need(not given.keys() & attributes.keys(), "an argument is given twice")
    found = {**given, **attributes}
    _need(found.keys() <= set(names), f"no keyword {sorted(found.keys() - set(names))}")
    return found


def _axis(dim: Any, rank: int) -> int:
    _need(isinstance(dim, int) and -rank <= dim < rank, f"dimension {dim} of {rank}")
    return int(dim) % rank


def _axes(dim: Any, rank: int) -> tuple[int, ...]:
    if dim is None or dim == ():
        return tuple(range(rank))
    found = [_axis(each, rank) for each in (dim if isinstance(dim, tuple) else (dim,))]
    _need(len(set(found)) == len(found), f"dimensions {dim}")
    return tuple(found)


def _affine(value: Array, operands: list[Any], shape: tuple[int, ...], wide: tuple[int, ...]) -> Array:
    for operand, combine in zip(operands, (np.multiply, np.add), strict=False):
        if operand is not None:
            _need(operand.shape == shape, f"a weight of shape {operand.shape} for {shape}")
            value = combine(value, operand.reshape(wide))
    return value


def _standard(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    centred = x - x.mean(axis=axes, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(axis=axes, keepdims=True) + eps))


def _rows(values: list[Any], attributes: Attributes, default: float) -> tuple[list[Any], tuple[int, ...], float]:
    """The tensors of a normalisation, the shape that it normalises and its epsilon."""
    tensors, told = list(values), dict(attributes)
    if len(tensors) > 1 and isinstance(tensors[1], tuple | int):
        _need("normalized_shape" not in told, "two shapes")
        shape = tensors.pop(1)
        told["normalized_shape"] = shape if isinstance(shape, tuple) else (shape,)
    if tensors and isinstance(tensors[-1], float):
        told["eps"] = tensors.pop()
    _need(told.keys() <= {"normalized_shape", "eps"}, f"keywords {sorted(told)}")
    x = tensors[0]
    shape = told.get("normalized_shape")
    if shape is None:
        shape = next((own.shape for own in tensors[1:] if own is not None), x.shape[-1:])
    _need(bool(shape) and tuple(shape) == x.shape[-len(shape) :], f"normalised shape {shape} of {x.shape}")
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
    _need(told.keys() <= {"num_groups", "eps"}, f"keywords {sorted(told)}")
    x, groups = tensors[0], told["num_groups"]
    _need(x.ndim >= 2 and groups > 0 and x.shape[1] % groups == 0, f"{groups} groups of shape {x.shape}")
    found = _standard(x.reshape(x.shape[0], groups, -1), (2,), told.get("eps", 1e-5)).reshape(x.shape)
    return _affine(found, weights, x.shape[1:2], _channels(x))


def _batch_norm(values: list[Any], attributes: Attributes) -> Array:
    tensors = [value for value in values[:5] if value is None or isinstance(value, np.ndarray)]
    names = ("training", "momentum", "eps")
    told = {**dict(zip(names, values[len(tensors) :], strict=False)), **attributes}
    _need(told.keys() <= {*names, "cudnn_enabled"}, f"keywords {sorted(told)}")
    x, mean, variance = tensors[:3]
    _need(x.ndim >= 2, f"shape {x.shape}")
    axes, eps = (0, *range(2, x.ndim)), told.get("eps", 1e-5)
    if told.get("training", False):
        return _affine(_standard(x, axes, eps), tensors[3:], x.shape[1:2], _channels(x))
    _need(mean.shape == variance.shape == x.shape[1:2], f"statistics of shape {mean.shape}")
    found = (x - mean.reshape(_channels(x))) / np.sqrt(variance.reshape(_channels(x)) + eps)
    return _affine(found, tensors[3:], x.shape[1:2], _channels(x))


def _convolve(dims: int, values: list[Any], attributes: Attributes) -> Array:
    tensors = [value for value in values[:3] if value is None or isinstance(value, np.ndarray)]
    names = ("stride", "padding", "dilation", "groups")
    told = {**dict(zip(names, values[len(tensors) :], strict=False)), **attributes}
    bias = told.pop("bias", tensors[2] if len(tensors) > 2 else None)
    _need(told.keys() <= set(names), f"keywords {sorted(told)}")
    x, weight = tensors[:2]

    def each(name: str, default: int) -> tuple[int, ...]:
        given = told.get(name, default)
        return tuple(given) if isinstance(given, tuple) and len(given) == dims else (int(np.ravel(given)[0]),) * dims

    stride, padding, dilation, groups = each("stride", 1), each("padding", 0), each("dilation", 1), told.get("groups", 1)
    _need(x.ndim == weight.ndim == dims + 2 and groups > 0, f"shapes {x.shape} and {weight.shape}")
    _need(x.shape[1] == groups * weight.shape[1] and weight.shape[0] % groups == 0, f"{x.shape[1]} channels in {groups} groups")
    padded = np.pad(x, [(0, 0), (0, 0), *((n, n) for n in padding)])
    spans = [apart * (width - 1) + 1 for apart, width in zip(dilation, weight.shape[2:], strict=True)]
    sizes = [(n - span) // step + 1 for n, span, step in zip(padded.shape[2:], spans, stride, strict=True)]
    _need(min(sizes) > 0, f"no positions of shape {x.shape}")
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
    _need(len(values) == 3 and not attributes, "where")
    return np.where(np.real(values[0]) != 0, values[1], values[2])


def _masked_fill(values: list[Any], attributes: Attributes) -> Array:
    told = _told(values, attributes, "value")
    filled: Array = np.where(np.real(values[1]) != 0, told["value"], values[0])
    _need(filled.shape == values[0].shape, "a mask that is wider")
    return filled


_LOSS = ("weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing")


def _log_chances(x: Array) -> Array:
    shifted = x - np.real(x).max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _classes(logarithms: Callable[[Array], Array], values: list[Any], attributes: Attributes) -> Array:
    """The loss of the target's class, and of all classes as far as labels are smoothed; ignored targets count nowhere."""
    told = _told(values, attributes, *_LOSS)
    _need(all(told.get(name) is None for name in ("weight", "size_average", "reduce")), "weights of classes")
    rows, target = logarithms(values[0]), np.real(values[1]).astype(int)
    _need(rows.ndim == 2 and target.shape == rows.shape[:1], f"shapes {rows.shape} and {target.shape}")
    counted = target != told.get("ignore_index", -100)
    _need(bool(np.all((target[counted] >= 0) & (target[counted] < rows.shape[1]))), "a target that is no class")
    picked = rows[np.arange(len(target)), np.where(counted, target, 0)]
    smooth = told.get("label_smoothing", 0.0)
    each = -((1 - smooth) * picked + smooth * rows.mean(axis=1)) * counted
    return _reduced(each, told.get("reduction", "mean"), float(counted.sum()))


def _reduced(each: Array, how: str, count: float) -> Array:
    _need(how in ("none", "sum", "mean"), f"the reduction {how}")
    if how == "none":
        return each
    with np.errstate(all="ignore"):
        return np.reshape(each.sum() / (count if how == "mean" else 1.0), (1,))


def _errors(function: Callable[..., Array], values: list[Any], attributes: Attributes) -> Array:
    told = {"reduction": "mean", **attributes}
    own = {name: told.pop(name) for name in ("beta", "delta") if name in told}
    _need(told.keys() == {"reduction"} and len(values) == 2 and values[0].shape == values[1].shape, "operands of a loss")
    each = function(*values, **own)
    if told["reduction"] == "batchmean":
        return np.reshape(each.sum() / each.shape[0], (1,))
    return _reduced(each, told["reduction"], each.size)


def _size(x: Array) -> Array:
    return np.where(np.real(x) < 0, -x, x)


def _smooth(x: Array, y: Array, beta: float = 1.0) -> Array:
    size = _size(x - y)
    return np.where(np.real(size) < beta, size * size / (2 * beta), size - beta / 2)


def _expand(values: list[Any], attributes: Attributes) -> Array:
    x, size = values[0], _told(values, {k: v for k, v in attributes.items() if k != "implicit"}, "size")["size"]
    new = len(size) - x.ndim
    _need(new >= 0 and all(n >= 0 for n in size[:new]), f"{size} of shape {x.shape}")
    wanted = (*size[:new], *(own if n == -1 else n for n, own in zip(size[new:], x.shape, strict=True)))
    return np.broadcast_to(x, wanted).copy()


def _narrow(values: list[Any], attributes: Attributes) -> Array:
    told = _told(values, attributes, "dim", "start", "length")
    x, axis = values[0], _axis(told["dim"], values[0].ndim)
    size = x.shape[axis]
    start = told["start"] + (size if told["start"] < 0 else 0)
    _need(0 <= start <= start + told["length"] <= size, f"{told} of shape {x.shape}")
    return np.take(x, range(start, start + told["length"]), axis=axis)


def _split(values: list[Any], attributes: Attributes, chunks: bool = False) -> tuple[Array, ...]:
    name = "chunks" if chunks else "split_size" if "split_size" in attributes else "split_size_or_sections"
    told = _told(values, attributes, name, "dim")
    x, given, axis = values[0], told[name], _axis(told.get("dim", 0), values[0].ndim)
    size = x.shape[axis]
    if not isinstance(given, tuple):
        step = -(-size // given) if chunks else given
        given = tuple(min(step, size - low) for low in range(0, size, step))
    _need(sum(given) == size, f"{given} of {size}")
    return tuple(np.split(x, np.cumsum(given)[:-1], axis=axis))


def _cat(values: list[Any], attributes: Attributes) -> Array:
    tensors = [value for value in values if isinstance(value, np.ndarray)]
    return np.concatenate(tensors, axis=_axis(_told(values, attributes, "dim").get("dim", 0), tensors[0].ndim))


def _stack(values: list[Any], attributes: Attributes) -> Array:
    tensors = [value for value in values if isinstance(value, np.ndarray)]
    return np.stack(tensors, axis=_axis(_told(values, attributes, "dim").get("dim", 0), tensors[0].ndim + 1))


def _repeat_interleave(values: list[Any], attributes: Attributes) -> Array:
    told = _told(values, attributes, "repeats", "dim", "output_size")
    found = np.repeat(values[0], told["repeats"], axis=_axis(told["dim"], values[0].ndim))
    _need(told.get("output_size") in (None, found.shape[told["dim"]]), "another size of the result")
    return found


def _along(function: Callable[[Array, tuple[int, ...]], Array], values: list[Any], attributes: Attributes) -> Array:
    """A function of rows along `dim`, which then is gone, or of size 1."""
    told = _told(values, attributes, "dim", "keepdim")
    axes = _axes(told.get("dim"), values[0].ndim)
    found = function(values[0], axes)
    return found if told.get("keepdim") else found.reshape([n for i, n in enumerate(values[0].shape) if i not in axes] or [1])


def _log_sum_exp(x: Array, axes: tuple[int, ...]) -> Array:
    return np.asarray(np.log(np.exp(x).sum(axis=axes, keepdims=True)))


def _squares(x: Array, axes: tuple[int, ...]) -> Array:
    return np.asarray(((x - x.mean(axis=axes, keepdims=True)) ** 2).sum(axis=axes, keepdims=True))


def _variance(x: Array, axes: tuple[int, ...]) -> Array:
    return _squares(x, axes) / (np.prod([x.shape[i] for i in axes]) - 1)


def _cumsum(values: list[Any], attributes: Attributes) -> Array:
    return np.cumsum(values[0], axis=_axis(_told(values, attributes, "dim")["dim"], values[0].ndim))


def _flip(values: list[Any], attributes: Attributes) -> Array:
    dims = _told(values, attributes, "dims")["dims"]
    return np.flip(values[0], _axes(dims if isinstance(dims, tuple) else (dims,), values[0].ndim))


def _triangle(lower: bool, values: list[Any], attributes: Attributes) -> Array:
    diagonal = _told(values, attributes, "diagonal").get("diagonal", 0)
    return (np.tril if lower else np.triu)(values[0], diagonal)


def _index_select(values: list[Any], attributes: Attributes) -> Array:
    x, index = (value for value in values if isinstance(value, np.ndarray))
    dim = attributes.get("dim", next((value for value in values if isinstance(value, int)), None))
    return np.take(x, np.real(index).astype(int), axis=_axis(dim, x.ndim))


def _clamp(values: list[Any], attributes: Attributes) -> Array:
    told = _told(values, attributes, "min", "max")
    x = values[0]
    for bound, beyond in ((told.get("min"), np.less), (told.get("max"), np.greater)):
        x = x if bound is None else np.where(beyond(np.real(x), bound), bound, x)
    return np.asarray(x)


def _either(greater: bool, values: list[Any], attributes: Attributes) -> Array:
    _need(len(values) == 2 and not attributes, "two operands")
    first = np.real(values[0]) > np.real(values[1])
    return np.where(first if greater else ~first, values[0], values[1])


_FUNCTIONS: dict[str, Function] = {
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
    "expand": _expand,
    "narrow": _narrow,
    "split": _split,
    "chunk": partial(_split, chunks=True),
    "cat": _cat,
    "stack": _stack,
    "repeat_interleave": _repeat_interleave,
    "logsumexp": partial(_along, _log_sum_exp),
    "var": partial(_along, _variance),
    "cumsum": _cumsum,
    "flip": _flip,
    "tril": partial(_triangle, True),
    "triu": partial(_triangle, False),
    "index_select": _index_select,
    "clamp": _clamp,
    "maximum": partial(_either, True),
    "minimum": partial(_either, False),
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
