"""Operators of the oracle that move elements, or work along rows of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from oracle.arguments import Array, Attributes, axes_of, axis_of, need, told_arguments


def expand(values: list[Any], attributes: Attributes) -> Array:
    x, size = values[0], told_arguments(values, {k: v for k, v in attributes.items() if k != "implicit"}, "size")["size"]
    new = len(size) - x.ndim
    need(new >= 0 and all(n >= 0 for n in size[:new]), f"{size} of shape {x.shape}")
    wanted = (*size[:new], *(own if n == -1 else n for n, own in zip(size[new:], x.shape, strict=True)))
    return np.broadcast_to(x, wanted).copy()


def narrow(values: list[Any], attributes: Attributes) -> Array:
    told = told_arguments(values, attributes, "dim", "start", "length")
    x, axis = values[0], axis_of(told["dim"], values[0].ndim)
    size = x.shape[axis]
    start = told["start"] + (size if told["start"] < 0 else 0)
    need(0 <= start <= start + told["length"] <= size, f"{told} of shape {x.shape}")
    return np.take(x, range(start, start + told["length"]), axis=axis)


def split(values: list[Any], attributes: Attributes, chunks: bool = False) -> tuple[Array, ...]:
    name = "chunks" if chunks else "split_size" if "split_size" in attributes else "split_size_or_sections"
    told = told_arguments(values, attributes, name, "dim")
    x, given, axis = values[0], told[name], axis_of(told.get("dim", 0), values[0].ndim)
    size = x.shape[axis]
    if not isinstance(given, tuple):
        step = -(-size // given) if chunks else given
        given = tuple(min(step, size - low) for low in range(0, size, step))
    need(sum(given) == size, f"{given} of {size}")
    return tuple(np.split(x, np.cumsum(given)[:-1], axis=axis))


def cat(values: list[Any], attributes: Attributes) -> Array:
    tensors = [value for value in values if isinstance(value, np.ndarray)]
    return np.concatenate(tensors, axis=axis_of(told_arguments(values, attributes, "dim").get("dim", 0), tensors[0].ndim))


def stack(values: list[Any], attributes: Attributes) -> Array:
    tensors = [value for value in values if isinstance(value, np.ndarray)]
    return np.stack(tensors, axis=axis_of(told_arguments(values, attributes, "dim").get("dim", 0), tensors[0].ndim + 1))


def repeat_interleave(values: list[Any], attributes: Attributes) -> Array:
    told = told_arguments(values, attributes, "repeats", "dim", "output_size")
    found = np.repeat(values[0], told["repeats"], axis=axis_of(told["dim"], values[0].ndim))
    need(told.get("output_size") in (None, found.shape[told["dim"]]), "another size of the result")
    return found


def along(function: Callable[[Array, tuple[int, ...]], Array], values: list[Any], attributes: Attributes) -> Array:
    """A function of rows along `dim`, which then is gone, or of size 1."""
    told = told_arguments(values, attributes, "dim", "keepdim")
    axes = axes_of(told.get("dim"), values[0].ndim)
    found = function(values[0], axes)
    return found if told.get("keepdim") else found.reshape([n for i, n in enumerate(values[0].shape) if i not in axes] or [1])


def log_sum_exp(x: Array, axes: tuple[int, ...]) -> Array:
    return np.asarray(np.log(np.exp(x).sum(axis=axes, keepdims=True)))


def _squares(x: Array, axes: tuple[int, ...]) -> Array:
    return np.asarray(((x - x.mean(axis=axes, keepdims=True)) ** 2).sum(axis=axes, keepdims=True))


def variance(x: Array, axes: tuple[int, ...]) -> Array:
    return _squares(x, axes) / (np.prod([x.shape[i] for i in axes]) - 1)


def cumsum(values: list[Any], attributes: Attributes) -> Array:
    return np.cumsum(values[0], axis=axis_of(told_arguments(values, attributes, "dim")["dim"], values[0].ndim))


def flip(values: list[Any], attributes: Attributes) -> Array:
    dims = told_arguments(values, attributes, "dims")["dims"]
    return np.flip(values[0], axes_of(dims if isinstance(dims, tuple) else (dims,), values[0].ndim))


def triangle(lower: bool, values: list[Any], attributes: Attributes) -> Array:
    diagonal = told_arguments(values, attributes, "diagonal").get("diagonal", 0)
    return (np.tril if lower else np.triu)(values[0], diagonal)


def index_select(values: list[Any], attributes: Attributes) -> Array:
    x, index = (value for value in values if isinstance(value, np.ndarray))
    dim = attributes.get("dim", next((value for value in values if isinstance(value, int)), None))
    return np.take(x, np.real(index).astype(int), axis=axis_of(dim, x.ndim))


def clamp(values: list[Any], attributes: Attributes) -> Array:
    told = told_arguments(values, attributes, "min", "max")
    x = values[0]
    for bound, beyond in ((told.get("min"), np.less), (told.get("max"), np.greater)):
        x = x if bound is None else np.where(beyond(np.real(x), bound), bound, x)
    return np.asarray(x)


def either(greater: bool, values: list[Any], attributes: Attributes) -> Array:
    need(len(values) == 2 and not attributes, "two operands")
    first = np.real(values[0]) > np.real(values[1])
    return np.where(first if greater else ~first, values[0], values[1])
