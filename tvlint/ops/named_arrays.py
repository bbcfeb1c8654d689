"""Arrays whose dimensions have names, for the semantics of operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

from tvlint.ops.field import Array, Field
from tvlint.ops.spec import ONE, Bound, Names

_PLAIN = 1 << 14
"""So many products are added up one by one."""


def align(array: Array, names: Names, onto: Sequence[str]) -> Array:
    """`array` with its axes in the order of `onto`, of size 1 where it has no such name."""
    kept = [(name, size) for name, size in zip(names, array.shape, strict=True) if name != ONE]
    kept_names = [name for name, _ in kept]
    bare = array.reshape([size for _, size in kept])
    ordered = bare.transpose([kept_names.index(name) for name in onto if name in kept_names])
    sizes = dict(kept)
    result: Array = ordered.reshape([sizes.get(name, 1) for name in onto])
    return result


def spread(array: Array, onto: Sequence[str], result: Names) -> Array:
    """`array` with axes `onto` as a result with axes `result`, which are the same names and dimensions of size 1."""
    named = [name for name in result if name != ONE]
    ordered = array.transpose([list(onto).index(name) for name in named])
    sizes = dict(zip(named, ordered.shape, strict=True))
    placed: Array = ordered.reshape([1 if name == ONE else sizes[name] for name in result])
    return placed


def every_name(bound: Bound) -> list[str]:
    """Return the names of the operands, in order of appearance."""
    return list(dict.fromkeys(name for names in bound.operands for name in names if name != ONE))


def aligned(bound: Bound, operands: Sequence[Array], onto: Sequence[str]) -> list[Array]:
    """Return every operand, aligned."""
    return [align(operand, names, onto) for operand, names in zip(operands, bound.operands, strict=False)]


def contract(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    """Return the product of the operands, summed over the names that the output lacks; averaged over `averaged` ones."""
    names = every_name(bound)
    (result,) = bound.outputs
    if len(operands) > 1 and not bound.averaged and all(operand.dtype == float for operand in operands):
        return (spread(_summed(bound, operands, names), [name for name in names if name in result], result),)
    product = reduce(lambda left, right: left * right, aligned(bound, operands, names))
    gone = tuple(axis for axis, name in enumerate(names) if name not in result)
    total = product.sum(axis=gone) if gone else product
    for axis in gone:
        if names[axis] in bound.averaged:
            total = field.divide(total, field.number(product.shape[axis]))
    return (spread(as_array(total), [name for name in names if name in result], result),)


def _summed(bound: Bound, operands: Sequence[Array], names: Sequence[str]) -> Array:
    """Return the product of floating-point operands, summed as products of matrices are, without holding all of it."""
    kept = [name for name in names if name in bound.outputs[0]]
    return as_array(sum_of_products(list(zip(operands, bound.operands, strict=False)), kept))


def sum_of_products(factors: Sequence[tuple[Array, Sequence[str]]], kept: Sequence[str]) -> Any:
    """Return the product of arrays with named dimensions, summed over the names that are not kept."""
    numbers: dict[str, int] = {}
    arguments: list[Any] = []
    for array, names in factors:
        held = [
            (size, numbers.setdefault(name, len(numbers))) for size, name in zip(array.shape, names, strict=True) if name != ONE
        ]
        arguments += [array.reshape([size for size, _ in held]), [number for _, number in held]]
    return contracted(arguments, [numbers[name] for name in kept])


def contracted(arguments: Sequence[Any], kept: Sequence[int]) -> Any:
    """Return what `np.einsum` makes of arrays and the numbers of their dimensions; small ones are not worth an order of its
    own.
    """
    import numpy as np

    arrays, numbers = arguments[::2], arguments[1::2]
    sizes = {
        number: size
        for array, held in zip(arrays, numbers, strict=True)
        for number, size in zip(held, array.shape, strict=True)
    }
    return np.einsum(*arguments, kept, optimize=prod(sizes.values()) > _PLAIN)


def as_array(value: Any) -> Array:
    """`value` as an array; a single element becomes an array without dimensions."""
    import numpy as np

    if hasattr(value, "__array_function__"):
        found: Array = value
        return found
    return np.asarray(value) if isinstance(value, np.generic) else np.array(value, dtype=object)
