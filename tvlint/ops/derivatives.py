"""Gradients of an operator in numbers, from its semantics alone: it runs once on arrays that note how each was made.

A gradient goes back through what was noted by the chain rule. What no gradient came to gives none, whatever its derivative is:
a quotient by zero that a choice leaves out is no number, and does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeAlias

from tvlint.ops.field import Array, Field, Floats
from tvlint.ops.named_arrays import contracted
from tvlint.ops.spec import Bound, Evaluate, UnsupportedError

_STEP = 1e-40
"""An imaginary step that vanishes beside 1."""

Back: TypeAlias = Callable[[Array], Array]
"""The gradient of what an array was made of, from that of the array."""

_numbers = count()


def gradient(
    evaluate: Evaluate, bound: Bound, operands: Sequence[Array], position: int, incoming: Mapping[int, Array]
) -> Array:
    """Return the vector-Jacobian product with respect to operand `position`; `incoming` are the gradients of the outputs."""
    return gradients(lambda arrays, field: evaluate(bound, arrays, field), operands, [position], incoming)[position]


def gradients(
    run: Callable[[Sequence[Array], Field], Sequence[Array]],
    operands: Sequence[Array],
    positions: Sequence[int],
    incoming: Mapping[int, Array],
) -> dict[int, Array]:
    """Return the vector-Jacobian products with respect to the operands at `positions`, exact but for rounding.

    `incoming` are the gradients of the outputs, by position.
    """
    import numpy as np

    given: list[Any] = list(operands)
    for position in positions:
        given[position] = Traced(np.asarray(operands[position], dtype=float))
    with np.errstate(all="ignore"):
        outputs = run(given, _Tracing())
        found = _gone_back([(outputs[at], gradient) for at, gradient in incoming.items() if is_traced(outputs[at])])
    return {at: np.asarray(found.get(given[at].number, np.zeros(np.shape(operands[at])))) for at in positions}


def is_traced(value: object) -> bool:
    """Return whether a value notes how it was made."""
    return isinstance(value, Traced)


def _gone_back(incoming: Sequence[tuple[Any, Array]]) -> dict[int, Any]:
    """Return the gradients of all that the arrays were made of, by number."""
    known: dict[int, Any] = {}
    waiting: list[tuple[int, Traced]] = []

    def add(made: Traced, gradient: Array) -> None:
        if made.number not in known:
            heappush(waiting, (-made.number, made))
        known[made.number] = known.get(made.number, 0) + gradient

    for each, gradient in incoming:
        add(each, gradient.reshape(each.shape))
    while waiting:
        _, made = heappop(waiting)
        for source, back in made.sources:
            add(source, back(known[made.number]))
    return known


class Traced:
    """An array of numbers with what it was made of: `sources` are arrays that were made before, each with the way back."""

    __array_ufunc__ = None
    """Arithmetic with arrays of NumPy is that of this class."""

    def __init__(self, value: Array, *sources: tuple[Traced, Back]) -> None:
        self.value, self.sources, self.number = value, sources, next(_numbers)
        self.shape, self.ndim, self.size, self.dtype = value.shape, value.ndim, value.size, value.dtype

    def __array__(self, *args: object, **kwargs: object) -> Array:
        raise UnsupportedError("semantics that forgets how an array was made")

    def __array_function__(self, function: Any, types: object, args: Any, kwargs: Any) -> Any:
        import numpy as np

        ways: dict[Any, Callable[..., Any]] = {
            np.real: _value,
            np.where: _where,
            np.einsum: _einsum,
            np.cumsum: _cumsum,
            np.pad: _pad,
            np.stack: partial(_joined, np.stack),
            np.concatenate: partial(_joined, np.concatenate),
        }
        if function in ways:
            return ways[function](*args, **kwargs)
        if function not in (np.moveaxis, np.split, np.tile, np.roll, np.repeat, np.flip, np.broadcast_to):
            raise UnsupportedError(f"the gradient of `{function.__name__}` of NumPy")
        return _moved(lambda array: function(array, *args[1:], **kwargs), args[0])

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Traced]:
        return (self[at] for at in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        return _moved(lambda array: array[index], self)

    def take(self, places: Any, axis: int) -> Any:
        return _moved(lambda array: array.take(places, axis=axis), self)

    def swapaxes(self, one: int, other: int) -> Any:
        return _moved(lambda array: array.swapaxes(one, other), self)

    def diagonal(self, offset: int, one: int, other: int) -> Any:
        return _moved(lambda array: array.diagonal(offset, one, other), self)

    def transpose(self, *order: Any) -> Any:
        return _moved(lambda array: array.transpose(*order), self)

    def reshape(self, *shape: Any) -> Traced:
        return Traced(self.value.reshape(*shape), (self, lambda gradient: gradient.reshape(self.shape)))

    def sum(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Traced:
        import numpy as np

        def back(gradient: Array) -> Array:
            wide = gradient if keepdims or axis is None else np.expand_dims(gradient, axis)
            return np.broadcast_to(wide, self.shape)

        return Traced(np.asarray(self.value.sum(axis=axis, keepdims=keepdims)), (self, back))

    def prod(self, axis: tuple[int, ...], keepdims: bool) -> Any:
        import numpy as np

        shape = np.prod(self.value, axis=axis, keepdims=keepdims).shape
        rows = self.transpose([*axis, *(at for at in range(self.ndim) if at not in axis)]).reshape(-1, *shape)
        total: Any = 1.0
        for row in rows:
            total = total * row
        return total

    def __neg__(self) -> Traced:
        return Traced(-self.value, (self, lambda gradient: -gradient))

    def __add__(self, other: Any) -> Any:
        return _of_both(_value(self) + _value(other), self, other, 1.0, 1.0)

    def __sub__(self, other: Any) -> Any:
        return _of_both(_value(self) - _value(other), self, other, 1.0, -1.0)

    def __rsub__(self, other: Any) -> Any:
        return _of_both(_value(other) - _value(self), other, self, 1.0, -1.0)

    def __mul__(self, other: Any) -> Any:
        return _of_both(_value(self) * _value(other), self, other, _value(other), _value(self))

    __radd__, __rmul__ = __add__, __mul__


class _Tracing(Floats):
    """Floating-point numbers that note how they were made."""

    def function(self, name: str, operand: Any) -> Any:
        if not is_traced(operand):
            return super().function(name, operand)
        value, moved = (super(_Tracing, self).function(name, operand.value + step) for step in (0.0, 1j * _STEP))
        return _of_both(value, operand, None, _slope(moved))

    def divide(self, left: Any, right: Any) -> Any:
        one, other = _value(left), _value(right)
        return _of_both(one / other, left, right, 1 / other, -one / (other * other))

    def power(self, left: Any, right: Any) -> Any:
        one, other = _value(left), _value(right)
        slopes = [
            _slope(super(_Tracing, self).power(one + by, other + to)) for by, to in ((1j * _STEP, 0.0), (0.0, 1j * _STEP))
        ]
        return _of_both(super().power(one, other), left, right, *slopes)


def _slope(moved: Array) -> Array:
    """Return the derivative of a function of each element, from what it makes of elements that are moved by the step."""
    import numpy as np

    return np.asarray(np.imag(moved) / _STEP)


def _value(array: Any) -> Any:
    return array.value if is_traced(array) else array


def _of_both(value: Any, one: Any, other: Any, slope: Any, steepness: Any = None) -> Any:
    """Return a function of each element of two arrays, of which one may be none that is traced, with its two derivatives."""
    import numpy as np

    def back(source: Traced, derivative: Any) -> Back:
        return lambda gradient: _sum_to(np.where(gradient == 0, 0.0, gradient * derivative), source.shape)

    both = ((one, slope), (other, steepness))
    sources = [(each, back(each, derivative)) for each, derivative in both if is_traced(each)]
    return Traced(np.asarray(value), *sources) if sources else value


def _sum_to(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Return the gradient of an array of this shape from that of what it was repeated to."""
    total: Array = gradient.sum(axis=tuple(range(gradient.ndim - len(shape))))
    repeated = tuple(at for at, size in enumerate(shape) if size == 1 != total.shape[at])
    return total.sum(axis=repeated, keepdims=True) if repeated else total


def _moved(move: Callable[[Any], Any], array: Traced, places: Callable[[Any], Any] | None = None) -> Any:
    """Return what has elements of an array in other places, or several times, found by the same move of their numbers.

    What is no element of it is numbered -1 by `places`, which does that move where it adds some.
    """
    import numpy as np

    numbers = (places or move)(np.arange(array.size).reshape(array.shape))

    def traced(value: Array, of: Array) -> Traced:
        return Traced(np.asarray(value), (array, lambda gradient: _counted(gradient, np.asarray(of), array)))

    value = move(array.value)
    return [traced(*both) for both in zip(value, numbers, strict=True)] if isinstance(value, list) else traced(value, numbers)


def _counted(gradient: Array, numbers: Array, array: Traced) -> Array:
    """Return the gradient of an array from that of what has its elements of these numbers, if they are any."""
    import numpy as np

    here = (numbers >= 0) & (numbers < array.size)
    return np.bincount(numbers[here], weights=gradient[here], minlength=array.size).reshape(array.shape)


def _joined(join: Callable[..., Array], arrays: Sequence[Any], axis: int = 0) -> Traced:
    import numpy as np

    values = [np.asarray(_value(array)) for array in arrays]
    ends = np.cumsum([value.size for value in values])
    numbers = [np.arange(value.size).reshape(value.shape) + end - value.size for value, end in zip(values, ends, strict=True)]
    of = join(numbers, axis=axis)

    def back(array: Traced, first: int) -> Back:
        return lambda gradient: _counted(gradient, of - first, array)

    firsts = [(array, end - array.size) for array, end in zip(arrays, ends, strict=True) if is_traced(array)]
    return Traced(join(values, axis=axis), *((array, back(array, first)) for array, first in firsts))


def _pad(array: Traced, widths: Any, constant_values: Any) -> Any:
    import numpy as np

    def padded(each: Array, fill: Any) -> Array:
        return np.pad(each, widths, constant_values=fill)

    return _moved(partial(padded, fill=constant_values), array, partial(padded, fill=-1))


def _where(mask: Array, left: Any, right: Any) -> Any:
    import numpy as np

    return _of_both(
        np.where(mask, _value(left), _value(right)), left, right, np.where(mask, 1.0, 0.0), np.where(mask, 0.0, 1.0)
    )


def _cumsum(array: Traced, axis: int) -> Traced:
    import numpy as np

    def back(gradient: Array) -> Array:
        return np.flip(np.cumsum(np.flip(gradient, axis), axis=axis), axis)

    return Traced(np.cumsum(array.value, axis=axis), (array, back))


def _einsum(*arguments: Any, optimize: bool) -> Traced:
    """Return a sum of products, with the sums of products of what came in and all other factors as the ways back."""
    import numpy as np

    *factors, kept = arguments
    arrays, names = list(map(_value, factors[::2])), factors[1::2]

    def back(at: int) -> Back:
        others = [each for i, array in enumerate(arrays) if i != at for each in (array, names[i])]
        shared = set(kept).union(*others[1::2])
        alone = [axis for axis, name in enumerate(names[at]) if name not in shared]
        found = [name for name in names[at] if name in shared]

        def gone(gradient: Array) -> Array:
            """An index of the factor alone counts alike at each of its places."""
            narrow = contracted([gradient, kept, *others], found)
            return np.broadcast_to(np.expand_dims(narrow, alone), arrays[at].shape)

        return gone

    given = [each for array, held in zip(arrays, names, strict=True) for each in (array, held)]
    value = np.einsum(*given, kept, optimize=optimize)
    return Traced(np.asarray(value), *((array, back(at)) for at, array in enumerate(factors[::2]) if is_traced(array)))
