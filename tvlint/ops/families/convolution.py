"""Convolutions and pooling. Positions must be whole: a rank that has some of them lacks their neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import product
from math import prod
from operator import ge, ne
from typing import Any

from tvlint.ir.operators import Literal, Value
from tvlint.ops.families.reductions import without_absent, without_none
from tvlint.ops.field import Array, Field
from tvlint.ops.operator_sequence import Made, OperatorSequence
from tvlint.ops.spec import ONE, Bound, Call, MisfitError, Names, OpSpec, Steps, Trait, UnsupportedError, having

_MOST_PLACES = 4096
_FIRST = (frozenset({0}),)


def _each(call: Call, name: str, given: Value, count: int, *, one_in_brackets: bool = True) -> tuple[int, ...]:
    """Return a whole number for each of `count` dimensions; one stands for all, in brackets too where these may hold one."""
    values = given if isinstance(given, tuple) else (given,)
    numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if (
        len(numbers) != len(values)
        or len(numbers) not in (1, count)
        or min(numbers, default=-1) < 0
        or (isinstance(given, tuple) and len(given) != count and not one_in_brackets)
    ):
        raise UnsupportedError(f"`{call.op}` with `{name}` {given}")
    return tuple(numbers) * (1 if len(numbers) == count else count)


def _positions(
    call: Call,
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padded: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, ...]:
    """Return the positions that a kernel is laid on, where `padded` counts what is added at both sides together."""
    found = []
    for size, width, step, around, apart in zip(sizes, kernel, stride, padded, dilation, strict=True):
        if min(width, step, apart) < 1:
            raise UnsupportedError(f"`{call.op}` with a kernel of {width}, the stride {step} and the dilation {apart}")
        found.append((size + around - apart * (width - 1) - 1) // step + 1)
    if min(found) < 1 or prod(kernel) > _MOST_PLACES:
        raise UnsupportedError(f"`{call.op}` of positions {tuple(sizes)} with a kernel of {tuple(kernel)}")
    return tuple(found)


def _apart(
    names: Names,
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> dict[str, int]:
    """Return the lengths of the windows that lie side by side and hold all positions, by the names of these."""
    every = zip(names, sizes, kernel, stride, padding, dilation, strict=True)
    return {
        name: width
        for name, size, width, step, around, apart in every
        if width == step and size % width == 0 and not around and (apart == 1 or width == 1)
    }


def _sides(call: Call, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return what is added before and behind the positions of each dimension; what `same` cannot halve goes behind them."""
    given = call.attributes.get("padding", 0)
    if given == "same" and set(stride) == {1}:
        added = [apart * (width - 1) for width, apart in zip(kernel, dilation, strict=True)]
        return tuple((most // 2, most - most // 2) for most in added)
    around = _each(call, "padding", 0 if given == "valid" else given, len(kernel))
    return tuple((most, most) for most in around)


def _names(prefix: str, count: int) -> Names:
    return tuple(f"{prefix}{i}" for i in range(count))


def _with_arguments(call: Call, *names: str) -> Call:
    """Return the call with its arguments by name, and without a bias that is `None`, also where more follow it."""
    inputs = tuple(each for place, each in enumerate(call.inputs) if place != 2 or each != Literal(None))
    return without_none(without_absent(replace(call, inputs=inputs)).with_arguments(*names), "bias")


def _convolution(dims: int) -> Callable[[Call], Bound]:
    def bind(call: Call) -> Bound:
        call = _with_arguments(call, "stride", "padding", "dilation", "groups")
        call.reject_unknown("stride", "padding", "dilation", "groups")
        call.expect(2, 3)
        x, weight = call.shape(0), call.shape(1)
        groups = call.attributes.get("groups", 1)
        if len(x) != dims + 2 or len(weight) != dims + 2 or not isinstance(groups, int) or groups < 1:
            raise UnsupportedError(f"`{call.op}` of shapes {x} and {weight} with `groups` {groups}")
        if x[1] != groups * weight[1]:
            said = f"`{call.op}` of {x[1]} channels with a weight of shape {weight} in {groups} groups"
            raise MisfitError(said, f"there have to be {groups * weight[1]} channels")
        if weight[0] % groups or (len(call.inputs) == 3 and call.shape(2) != weight[:1]):
            raise UnsupportedError(f"`{call.op}` of {x[1]} channels with a weight of shape {weight} in {groups} groups")
        stride, dilation = (_each(call, name, call.attributes.get(name, 1), dims) for name in ("stride", "dilation"))
        sides = _sides(call, weight[2:], stride, dilation)
        if any(map(any, sides)) and call.op.startswith("nnscaler."):
            raise UnsupportedError(f"`{call.op}` with `padding` {call.attributes['padding']}, which counts each side by itself")
        padded = tuple(map(sum, sides))
        result = _positions(call, x[2:], weight[2:], stride, padded, dilation)
        padding: Value = sides if any(left != right for left, right in sides) else tuple(left for left, _ in sides)
        places = _names("x", dims)
        at_once = [whole == (1, 1, 0) for whole in zip(weight[2:], stride, padded, strict=True)]
        kernel = tuple(ONE if one else name for one, name in zip(at_once, _names("k", dims), strict=True))
        found = tuple(x if one else y for one, x, y in zip(at_once, places, _names("y", dims), strict=True))
        inner = "c" if groups == 1 else "g"
        operands: tuple[Names, ...] = (
            ("n", "c", *places),
            ("o", inner, *kernel),
            *((("o",),) if len(call.inputs) == 3 else ()),
        )
        whole = {*places, *kernel, *found} - {ONE, *(name for name in places if name in found)}
        plain = len(call.inputs) == 2
        alone = groups > 1 and x[1] == weight[0] == groups
        if alone:
            operands = (operands[0], ("c", ONE, *kernel), *((("c",),) if not plain else ()))
        elif groups > 1:
            whole |= {"c", "o", "g"}
        elif not plain:
            whole.add("c")
        return Bound(
            operands,
            (("n", "c" if alone else "o", *found),),
            frozenset({"c"}) if plain and groups == 1 else frozenset(),
            whole=frozenset(whole),
            linear=(frozenset({0}), frozenset({1})) if plain else (frozenset({1, 2}),),
            attributes=(stride, padding, dilation, None if alone else groups),
            counts={"c": "groups"} if alone else {},
            sizes={name: size for name, size in zip(found, result, strict=True) if name in whole},
            runs=_apart(places, x[2:], weight[2:], stride, padded, dilation),
        )

    return bind


def _transposed(dims: int) -> Callable[[Call], Bound]:
    def bind(call: Call) -> Bound:
        names = ("stride", "padding", "output_padding", "groups", "dilation")
        call = _with_arguments(call, *names)
        call.reject_unknown(*names)
        call.expect(2, 3)
        x, weight = call.shape(0), call.shape(1)
        groups = call.attributes.get("groups", 1)
        if len(x) != dims + 2 or len(weight) != dims + 2 or not isinstance(groups, int) or groups < 1 or weight[0] % groups:
            raise UnsupportedError(f"`{call.op}` of shapes {x} and {weight} with `groups` {groups}")
        if x[1] != weight[0]:
            raise MisfitError(f"`{call.op}` of {x[1]} channels", f"there have to be {weight[0]}, as many as weights")
        plain = len(call.inputs) == 2
        if not plain and call.shape(2) != (weight[1] * groups,):
            raise UnsupportedError(f"`{call.op}` with a weight of shape {weight} and a bias of shape {call.shape(2)}")
        usual = (("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0))
        given = [_each(call, name, call.attributes.get(name, value), dims) for name, value in usual]
        result = [
            (size - 1) * step - 2 * around + apart * (width - 1) + more + 1
            for size, width, step, around, apart, more in zip(x[2:], weight[2:], *given, strict=True)
        ]
        most = [max(step, apart) for step, apart in zip(given[0], given[2], strict=True)]
        if min(*given[0], *given[2], *result) < 1 or prod(weight[2:]) > _MOST_PLACES or any(map(ge, given[3], most)):
            raise UnsupportedError(f"`{call.op}` of shapes {x} and {weight} to positions {tuple(result)}")
        places, kernel, found = _names("x", dims), _names("k", dims), _names("y", dims)
        outer = "o" if groups == 1 else "g"
        bias = () if plain else (("o",),)
        alone = plain and groups == 1
        return Bound(
            (("n", "c", *places), ("c", outer, *kernel), *bias),
            (("n", "o", *found),),
            frozenset({"c"}) if alone else frozenset(),
            whole=frozenset({*places, *kernel, *found, *(() if alone else ("c",)), *(() if groups == 1 else ("o", "g"))}),
            linear=(frozenset({0}), frozenset({1})) if plain else (frozenset({1, 2}),),
            attributes=(*given, groups),
            sizes={"o": weight[1] * groups, **dict(zip(found, result, strict=True))},
            runs=dict.fromkeys(_apart(places, weight[2:], weight[2:], *given[:3]), 1) if not any(given[3]) else {},
        )

    return bind


def _scatter(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    x, weight = operands[0], operands[1]
    stride, padding, dilation, _, groups = bound.attributes
    count = groups if isinstance(groups, int) else 1
    steps, around, apart = _whole(stride), _whole(padding), _whole(dilation)
    sizes = [bound.sizes[name] + 2 * padded for name, padded in zip(bound.outputs[0][2:], around, strict=True)]
    inner, outer = weight.shape[0] // count, weight.shape[1]
    nothing = np.array([field.number(0)])
    result: Any = nothing
    for place, group in product(product(*map(range, weight.shape[2:])), range(count)):
        channels, outputs = (slice(group * n, group * n + n) for n in (inner, outer))
        added = _weighed(x[:, channels], _taken(weight[channels], place).swapaxes(0, 1))
        at = [
            slice(index * wide, index * wide + step * (size - 1) + 1, step)
            for index, wide, step, size in zip(place, apart, steps, x.shape[2:], strict=True)
        ]
        where: Any = (slice(None), outputs, *at)
        taken = np.full((len(x), outer * count, *sizes), added.size)
        taken[where] = np.arange(added.size).reshape(added.shape)
        result = result + np.concatenate([added.reshape(-1), nothing])[taken]
    result = _taken(result, [slice(padded, size - padded) for padded, size in zip(around, sizes, strict=True)])
    if len(operands) == 3:
        result = result + operands[2].reshape([-1] + [1] * (x.ndim - 2))
    return (result,)


def _groups_of_all(local: Call, whole: Call) -> Call:
    """Return the convolution of all channels, of which a rank states how many groups its own are."""
    if len(whole.inputs) < 2:
        return whole
    (x, weight), (channels, part) = ((call.shape(0), call.shape(1)) for call in (whole, local))
    if min(map(len, (x, weight, channels, part))) < 2 or channels[1] == x[1] or part[1] != weight[1] or x[1] == weight[1]:
        return whole
    _convolution(len(x) - 2)(local)
    if (part[0], part[1]) != (channels[1], 1):
        raise UnsupportedError(f"`{whole.op}` of {channels[1]} of {x[1]} channels, which stand in groups of {weight[1]}")
    return replace(whole, attributes={**whole.attributes, "groups": x[1] // weight[1]})


def _windows(x: Array, kernel: Sequence[int], given: Sequence[Any], fill: Any) -> list[tuple[tuple[int, ...], Array]]:
    """For every place of the kernel, what it sees at every position of the result."""
    import numpy as np

    stride, padding, dilation = given
    around: Any = [(0, 0), (0, 0), *((n, n) if isinstance(n, int) else n for n in padding)]
    padded = np.pad(x, around, constant_values=fill)
    each = zip(padded.shape[2:], kernel, stride, dilation, strict=True)
    sizes = [(size - apart * (width - 1) - 1) // step + 1 for size, width, step, apart in each]
    seen = []
    for place in product(*map(range, kernel)):
        index = [
            slice(at * apart, at * apart + step * (size - 1) + 1, step)
            for at, apart, step, size in zip(place, dilation, stride, sizes, strict=True)
        ]
        seen.append((place, _taken(padded, index)))
    return seen


def _taken(x: Array, index: Sequence[slice | int]) -> Array:
    """Return what the slices of positions take, of all rows and channels."""
    every: Any = (slice(None), slice(None), *index)
    taken: Array = x[every]
    return taken


def _in_steps(dims: int) -> Callable[[Call], Steps]:
    """Return the convolution without its bias, and the bias of each channel added to all positions. Of windows that lie side by
    side, the convolution is the product of each window with the kernel.
    """
    usual = (("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1))

    def steps(call: Call) -> Steps:
        call = _with_arguments(call, *(name for name, _ in usual))
        sequence = OperatorSequence()
        if call.op.startswith("nnscaler."):
            return ()
        found = _windows_with_kernel(call, sequence, dims)
        if len(call.inputs) == 2:
            return sequence.steps()
        if found is None:
            given = (Literal(call.attributes.get(name, number)) for name, number in usual)
            found = sequence.then(f"conv{dims}d", 0, 1, *given)
        bias: int | Made = 2
        for _ in range(dims):
            bias = sequence.then("unsqueeze", bias, Literal(-1))
        sequence.then("add", found, bias)
        return sequence.steps()

    return steps


def _windows_with_kernel(call: Call, sequence: OperatorSequence, dims: int) -> Made | None:
    """Return the product of windows that lie side by side with the kernel; None where they do not, or do not hold all."""
    weight, bound = call.shape(1), _convolution(dims)(call)
    if len(bound.runs) < dims or call.attributes.get("groups", 1) != 1 or ONE in bound.operands[1]:
        return None
    windows: int | Made = 0
    for dim in reversed(range(dims)):
        windows = sequence.then("unflatten", windows, Literal(2 + dim), Literal((-1, weight[2 + dim])))
    positions, kernel = "xyz"[:dims], "ijk"[:dims]
    inside = "".join(map("".join, zip(positions, kernel, strict=True)))
    return sequence.then("einsum", Literal(f"nc{inside},oc{kernel}->no{positions}"), windows, 1)


def _convolve(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    x, weight = operands[0], operands[1]
    *given, groups = bound.attributes
    count = groups if isinstance(groups, int) else x.shape[1]
    seen = _windows(x, weight.shape[2:], given, field.number(0))
    inner, outer = weight.shape[1], weight.shape[0] // count
    parts = []
    for group in range(count):
        array = weight[group * outer : (group + 1) * outer]
        arrays = [_weighed(window[:, group * inner : (group + 1) * inner], _taken(array, place)) for place, window in seen]
        parts.append(reduce(lambda one, other: one + other, arrays))
    result = np.concatenate(parts, axis=1)
    if len(operands) == 3:
        result = result + operands[2].reshape([-1] + [1] * (x.ndim - 2))
    return (result,)


def _weighed(window: Array, weight: Array) -> Array:
    """Return what one place of the kernel adds: over inputs (n, c, ...) and weights (o, c)."""
    spread = weight.reshape([1, *weight.shape, *([1] * (window.ndim - 2))])
    total: Array = (window[:, None] * spread).sum(axis=2)
    return total


def _bind_pool(dims: int, *more: str) -> Callable[[Call], Bound]:
    def bind(call: Call) -> Bound:
        call = call.with_arguments("kernel_size", "stride", "padding", *more)
        call.reject_unknown("kernel_size", "stride", "padding", *more)
        call.expect(1)
        for name, usual in (
            ("ceil_mode", False),
            ("return_indices", False),
            ("count_include_pad", True),
            ("divisor_override", None),
        ):
            if call.attributes.get(name, usual) != usual:
                raise UnsupportedError(f"`{call.op}` with `{name}` {call.attributes[name]}")
        x = call.shape(0)
        if len(x) != dims + 2:
            raise UnsupportedError(f"`{call.op}` of shape {x}")
        kernel = _each(call, "kernel_size", call.attributes.get("kernel_size"), dims)
        step = call.attributes.get("stride")
        stride = kernel if step in (None, ()) else _each(call, "stride", step, dims)
        padding = _each(call, "padding", call.attributes.get("padding", 0), dims)
        dilation = _each(call, "dilation", call.attributes.get("dilation", 1), dims)
        greatest = "dilation" in more
        beyond = any(2 * around > width for around, width in zip(padding, kernel, strict=True))
        if beyond or (greatest and any(padding) and max(dilation) > 1):
            raise UnsupportedError(f"`{call.op}` with `padding` {padding}")
        result = _positions(call, x[2:], kernel, stride, tuple(2 * around for around in padding), dilation)
        places, found = _names("x", dims), _names("y", dims)
        return Bound(
            (("n", "c", *places),),
            (("n", "c", *found),),
            whole=frozenset({*places, *found}),
            linear=() if greatest else (frozenset({0}),),
            attributes=(kernel, stride, padding, dilation),
            sizes=dict(zip(found, result, strict=True)),
            runs=_apart(places, x[2:], kernel, stride, padding, dilation),
        )

    return bind


def _greatest(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    """Return the greatest that each position sees; what lies around the operand is smaller than everything."""
    import numpy as np

    kernel, *given = bound.attributes
    seen = [window for _, window in _windows(operands[0], _whole(kernel), given, field.number(0))]
    inside = [window for _, window in _windows(np.ones(operands[0].shape, bool), _whole(kernel), given, False)]
    best, known = seen[0], inside[0]
    for window, within in zip(seen[1:], inside[1:], strict=True):
        greater = field.where(field.less(best, window), window, best)
        best = np.where(within, np.where(known, greater, window), best)
        known = known | within
    return (best,)


def _average(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    kernel, *given = bound.attributes
    seen = [window for _, window in _windows(operands[0], _whole(kernel), given, field.number(0))]
    return (field.divide(reduce(lambda one, other: one + other, seen), field.number(len(seen))),)


def _whole(value: Value) -> tuple[int, ...]:
    return tuple(n for n in value if isinstance(n, int)) if isinstance(value, tuple) else ()


def _bind_adaptive(dims: int) -> Callable[[Call], Bound]:
    def bind(call: Call) -> Bound:
        call = call.with_arguments("output_size")
        call.reject_unknown("output_size")
        call.expect(1)
        x, places, found = call.shape(0), _names("x", dims), _names("y", dims)
        if len(x) != dims + 2:
            raise UnsupportedError(f"`{call.op}` of shape {x}")
        result = _each(call, "output_size", call.attributes.get("output_size"), dims, one_in_brackets=False)
        if min(result) < 1 or prod(result) > _MOST_PLACES:
            raise UnsupportedError(f"`{call.op}` to {result}")
        if set(result) == {1}:
            ones = (ONE,) * dims
            averaged = frozenset(places)
            return Bound((("n", "c", *places),), (("n", "c", *ones),), averaged=averaged, linear=_FIRST, attributes=(result,))
        return Bound(
            (("n", "c", *places),),
            (("n", "c", *found),),
            whole=frozenset({*places, *found}),
            linear=_FIRST,
            attributes=(result,),
            sizes=dict(zip(found, result, strict=True)),
            runs={name: size // new for name, size, new in zip(places, x[2:], result, strict=True) if size % new == 0},
        )

    return bind


def _adapt(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    x, result = operands[0], _whole(bound.attributes[0])
    places = []
    for place in product(*map(range, result)):
        index = [
            slice(at * size // count, -(-(at + 1) * size // count))
            for at, size, count in zip(place, x.shape[2:], result, strict=True)
        ]
        part = _taken(x, index)
        axes = tuple(range(2, x.ndim))
        places.append(field.divide(part.sum(axis=axes), field.number(prod(part.shape[2:]))))
    return (np.stack(places, axis=2).reshape([*x.shape[:2], *result]),)


_MODES = {"nearest": (1, 2, 3), "linear": (1,), "bilinear": (2,), "trilinear": (3,)}
_EXACT = 16
"""How many times nearest positions may be enlarged: torch divides in single precision, which is exact up to there."""


def _bind_interpolation(call: Call) -> Bound:
    call = call.with_arguments("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
    call.reject_unknown("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
    call.expect(1)
    x, attributes = call.shape(0), call.attributes
    dims, mode, corners = len(x) - 2, attributes.get("mode", "nearest"), attributes.get("align_corners")
    known = isinstance(mode, str) and dims in _MODES.get(mode, ())
    if not known or attributes.get("antialias") or corners not in (None, False):
        raise UnsupportedError(f"`{call.op}` of shape {x} with the mode `{mode}` and `align_corners` {corners}")
    size, scale = attributes.get("size"), attributes.get("scale_factor")
    if size is not None and scale is None:
        result = _each(call, "size", size, dims, one_in_brackets=False)
    elif size is None and scale is not None:
        given = scale if isinstance(scale, tuple) else (scale,) * dims
        wide = [n * each for n, each in zip(x[2:], given, strict=False) if isinstance(each, int | float)]
        result = tuple(map(int, wide))
        if len(given) != dims or len(wide) != dims or any(map(ne, wide, result)):
            raise UnsupportedError(f"`{call.op}` of shape {x} with `scale_factor` {scale}")
    else:
        raise UnsupportedError(f"`{call.op}` with `size` {size} and `scale_factor` {scale}")
    if any(min(n, new) < 1 or (new % n and n % new) or new > _EXACT * n for n, new in zip(x[2:], result, strict=True)):
        raise UnsupportedError(f"`{call.op}` of positions {x[2:]} to {result}")
    places, found = _names("x", dims), _names("y", dims)
    return Bound(
        (("n", "c", *places),),
        (("n", "c", *found),),
        whole=frozenset({*places, *found}),
        linear=_FIRST,
        attributes=("nearest" if mode == "nearest" else "linear", result),
        sizes=dict(zip(found, result, strict=True)),
        runs={name: max(1, n // new) for name, n, new in zip(places, x[2:], result, strict=True) if mode == "nearest"},
    )


def _interpolate(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    (x,) = operands
    mode, result = bound.attributes
    for axis, new in enumerate(_whole(result), 2):
        old = x.shape[axis]
        if mode == "nearest":
            x = x.take([i * old // new for i in range(new)], axis=axis)
            continue
        twice = [max((2 * i + 1) * old - new, 0) for i in range(new)]
        low = [exact // (2 * new) for exact in twice]
        part = field.divide(
            np.array([field.number(exact - 2 * new * at) for exact, at in zip(twice, low, strict=True)]), field.number(2 * new)
        ).reshape([-1 if dim == axis else 1 for dim in range(x.ndim)])
        below, above = x.take(low, axis=axis), x.take([min(at + 1, old - 1) for at in low], axis=axis)
        x = below + part * (above - below)
    return (x,)


def _signatures(name: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for module in ("torch", "torch.nn.functional", "torch._C._nn", "nnscaler.runtime.function"))


_OF_MAX = ("dilation", "ceil_mode", "return_indices")
_OF_AVERAGE = ("ceil_mode", "count_include_pad", "divisor_override")

SPECS = (
    *having(
        (Trait.CONTRACTION, Trait.CONVOLUTION),
        *(
            OpSpec(
                f"conv{n}d",
                _signatures(f"conv{n}d"),
                _convolution(n),
                steps=_in_steps(n),
                evaluate=_convolve,
                of_all=_groups_of_all,
            )
            for n in (1, 2, 3)
        ),
    ),
    *having(
        (Trait.CONTRACTION,),
        *(
            OpSpec(f"conv-transpose{n}d", _signatures(f"conv_transpose{n}d"), _transposed(n), evaluate=_scatter)
            for n in (1, 2, 3)
        ),
    ),
    OpSpec("interpolate", _signatures("interpolate"), _bind_interpolation, evaluate=_interpolate),
    *having(
        (Trait.NO_FLAGS,),
        *(
            OpSpec(f"max-pool{n}d", _signatures(f"max_pool{n}d"), _bind_pool(n, *_OF_MAX), evaluate=_greatest)
            for n in (1, 2, 3)
        ),
        *(
            OpSpec(f"avg-pool{n}d", _signatures(f"avg_pool{n}d"), _bind_pool(n, *_OF_AVERAGE), evaluate=_average)
            for n in (1, 2, 3)
        ),
    ),
    *having(
        (Trait.REAL,),
        *(
            OpSpec(f"adaptive-avg-pool{n}d", _signatures(f"adaptive_avg_pool{n}d"), _bind_adaptive(n), evaluate=_adapt)
            for n in (1, 2, 3)
        ),
    ),
)
