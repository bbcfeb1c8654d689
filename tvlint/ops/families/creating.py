"""Tensors that are made of constants alone: counts, and one number throughout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite

from tvlint.ir.operators import Literal, Value
from tvlint.ops.families.slicing import whole_number
from tvlint.ops.field import Array, Field
from tvlint.ops.spec import Bound, Call, OpSpec, Trait, UnsupportedError, stars

_KEYWORDS = ("dtype", "requires_grad", "device", "layout", "pin_memory", "out")


def _made(call: Call, sizes: Sequence[int], attributes: tuple[Value, ...]) -> Bound:
    """Return a tensor of these sizes, all of which is made."""
    given = call.attributes
    if given.get("requires_grad") not in (None, False) or given.get("out") is not None:
        raise UnsupportedError(f"`{call.op}` into another tensor, or with a gradient")
    if any(size < 1 for size in sizes):
        raise UnsupportedError(f"`{call.op}` of the size {tuple(sizes)}")
    names = stars(len(sizes))
    dtype = given.get("dtype")
    return Bound((), (names,), attributes=(*attributes, dtype, tuple(sizes)), sizes=dict(zip(names, sizes, strict=True)))


def _bind_counts(call: Call) -> Bound:
    """`arange`: from `start`, in steps, up to before `end`; one number alone is `end`."""
    call = call.with_arguments("end") if len(call.inputs) == 1 else call.with_arguments("start", "end", "step")
    call.reject_unknown("start", "end", "step", *_KEYWORDS)
    call.expect(0)
    first, last, step = (
        whole_number(call, name, call.attributes.get(name, default))
        for name, default in (("start", 0), ("end", None), ("step", 1))
    )
    if step == 0:
        raise UnsupportedError(f"`{call.op}` in steps of 0")
    return _made(call, (len(range(first, last, step)),), (first, step))


def _counts(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    first, step, _, sizes = bound.attributes
    if not isinstance(first, int) or not isinstance(step, int) or not isinstance(sizes, tuple):
        raise UnsupportedError(f"counting from {first} in steps of {step}")
    (size,) = (n for n in sizes if isinstance(n, int))
    return (np.array([field.number(first + step * i) for i in range(size)]),)


def _bind_constant(call: Call) -> Bound:
    """`zeros`, `ones` and `full` of a size; what `full` makes has the type of its number: flags are no numbers."""
    value = {"zeros": 0, "ones": 1}.get(call.op.rsplit(".", 1)[-1])
    words = ("size", "fill_value") if value is None else ("size",)
    call = call.with_arguments(*words) if value is None else _sizes_in_a_row(call).with_arguments(*words)
    call.reject_unknown(*words, *_KEYWORDS)
    call.expect(0)
    size = call.attributes.get("size")
    number = call.attributes.get("fill_value") if value is None else value
    if not isinstance(number, int | float):
        raise UnsupportedError(f"`{call.op}` with {number}")
    if value is None and call.attributes.get("dtype") is None and isinstance(number, int):
        name = "bool" if isinstance(number, bool) else "int64"
        call = replace(call, attributes={**call.attributes, "dtype": name})
    return _made(call, [whole_number(call, "size", one) for one in (size if isinstance(size, tuple) else (size,))], (number,))


def _sizes_in_a_row(call: Call) -> Call:
    """Return the call with sizes that stand one after the other, `zeros(4, 2)`, as the one tuple that `zeros((4, 2))` takes."""
    sizes = tuple(operand.value for operand in call.inputs if isinstance(operand, Literal) and isinstance(operand.value, int))
    return replace(call, inputs=(Literal(sizes),)) if 1 < len(sizes) == len(call.inputs) else call


def _constant(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    number, _, sizes = bound.attributes
    if not isinstance(number, int | float) or not isinstance(sizes, tuple):
        raise UnsupportedError(f"a tensor of {number}")
    return (np.full([n for n in sizes if isinstance(n, int)], field.number(number)),)


def _bind_like(call: Call) -> Bound:
    """`zeros_like`, `ones_like` and `full_like`: of a tensor only its shape counts."""
    value = {"zeros_like": 0, "ones_like": 1}.get(call.op.rsplit(".", 1)[-1])
    words = ("fill_value",) if value is None else ()
    call = call.with_arguments(*words)
    call.reject_unknown(*words, *_KEYWORDS, "memory_format")
    call.expect(1)
    number = call.attributes.get("fill_value") if value is None else value
    if not isinstance(number, int | float) or call.attributes.get("requires_grad") or call.attributes.get("out") is not None:
        raise UnsupportedError(f"`{call.op}` with {number}, into another tensor, or with a gradient")
    names, none, dtype = stars(len(call.shape(0))), frozenset({0}), call.attributes.get("dtype")
    if dtype is None and isfinite(number) and number != int(number):
        raise UnsupportedError(f"`{call.op}` with {number} and no `dtype`, which a tensor of whole numbers would round")
    return Bound((names,), (names,), attributes=(number, dtype), shape_only=none, zero_gradient=none)


def _like(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    number = bound.attributes[0]
    if not isinstance(number, int | float):
        raise UnsupportedError(f"a tensor of {number}")
    return (np.full(operands[0].shape, field.number(number)),)


def _signatures(name: str) -> tuple[str, ...]:
    return f"torch.{name}", f"nnscaler.runtime.function.{name}"


SPECS = (
    OpSpec("arange", _signatures("arange"), _bind_counts, evaluate=_counts, traits=frozenset({Trait.POSITIONS})),
    *(
        OpSpec(name, _signatures(name), _bind_constant, evaluate=_constant, traits=frozenset({Trait.FILLED}))
        for name in ("zeros", "ones", "full")
    ),
    *(
        OpSpec(
            name.replace("_", "-"),
            (*_signatures(name), f"torch.Tensor.{name}"),
            _bind_like,
            evaluate=_like,
            traits=frozenset({Trait.FILLED, Trait.LIKE}),
        )
        for name in ("zeros_like", "ones_like", "full_like")
    ),
)
