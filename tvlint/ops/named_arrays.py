"""Arrays whose dimensions have names, for the semantics of operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from tvlint.ops.field import Array, Field
from tvlint.ops.spec import ONE, Bound, Names


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
    import numpy as np

    factors: list[Any] = []
    for operand, dimensions in zip(operands, bound.operands, strict=False):
        sizes = [size for size, name in zip(operand.shape, dimensions, strict=True) if name != ONE]
        factors += [operand.reshape(sizes), [names.index(name) for name in dimensions if name != ONE]]
    kept = [at for at, name in enumerate(names) if name in bound.outputs[0]]
    return as_array(np.einsum(*factors, kept, optimize=True))


def as_array(value: Any) -> Array:
    """`value` as an array; a single element becomes an array without dimensions."""
    import numpy as np

    if hasattr(value, "__array_function__"):
        found: Array = value
        return found
    return np.asarray(value) if isinstance(value, np.generic) else np.array(value, dtype=object)
