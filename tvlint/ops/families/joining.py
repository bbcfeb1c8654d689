"""Operators that put tensors together or make them longer: concatenation, stacking, padding, repetition.

The dimension that is joined must be whole: what a rank would add to its part is not what the reference adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvlint.ops.families.slicing import dimension, whole_number
from tvlint.ops.field import Array, Field
from tvlint.ops.spec import Bound, Call, MisfitError, OpSpec, Trait, UnsupportedError, having, stars
from tvlint.ops.spelling import in_torch


def _concatenate(call: Call) -> Bound:
    call = call.with_arguments("dim")
    call.reject_unknown("dim")
    call.expect(1, len(call.inputs))
    shapes = [call.shape(i) for i in range(len(call.inputs))]
    names = stars(len(shapes[0]))
    dim = dimension(call, "dim", len(names), 0)
    if any(len(shape) != len(names) for shape in shapes):
        raise UnsupportedError(f"`{call.op}` of shapes {', '.join(map(str, shapes))}")
    if any(shape[:dim] + shape[dim + 1 :] != shapes[0][:dim] + shapes[0][dim + 1 :] for shape in shapes):
        said = f"`{call.op}` of shapes {', '.join(map(str, shapes))}"
        raise MisfitError(said, f"all dimensions but {dim} have to be the same")
    parts = [f"part{i}" for i in range(len(shapes))]
    return Bound(
        tuple((*names[:dim], part, *names[dim + 1 :]) for part in parts),
        ((*names[:dim], "joined", *names[dim + 1 :]),),
        whole=frozenset({"joined", *parts}),
        linear=(frozenset(range(len(shapes))),),
        attributes=tuple(shape[dim] for shape in shapes),
        sizes={"joined": sum(shape[dim] for shape in shapes)},
    )


def _join(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    return (
        np.concatenate(operands, axis=bound.outputs[0].index(next(n for n in bound.outputs[0] if n not in bound.operands[0]))),
    )


def _stack(call: Call) -> Bound:
    call = call.with_arguments("dim")
    call.reject_unknown("dim")
    call.expect(1, len(call.inputs))
    if len({call.shape(i) for i in range(len(call.inputs))}) != 1:
        said = f"`{call.op}` of shapes {', '.join(str(call.shape(i)) for i in range(len(call.inputs)))}"
        raise MisfitError(said, "all have to be of one shape")
    names, count = stars(len(call.shape(0))), len(call.inputs)
    dim = dimension(call, "dim", len(names) + 1, 0)
    return Bound(
        (names,) * count,
        ((*names[:dim], "stacked", *names[dim:]),),
        whole=frozenset({"stacked"}),
        linear=(frozenset(range(count)),),
        attributes=(count,),
        sizes={"stacked": count},
    )


def _pile(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    return (np.stack(operands, axis=next(i for i, n in enumerate(bound.outputs[0]) if n not in bound.operands[0])),)


def _pad(call: Call) -> Bound:
    """Constant padding; `pad` goes from the last dimension to the first, before and after."""
    call = call.with_arguments("pad", "mode", "value")
    call.reject_unknown("pad", "mode", "value")
    call.expect(1)
    shape = call.shape(0)
    names, pad, value = stars(len(shape)), call.attributes.get("pad"), call.attributes.get("value")
    if call.attributes.get("mode", "constant") != "constant" or not (value is None or isinstance(value, int | float)):
        raise UnsupportedError(f"`{call.op}` with the mode {call.attributes.get('mode')} and the value {value}")
    if not isinstance(pad, tuple) or len(pad) % 2 or len(pad) > 2 * len(shape):
        raise UnsupportedError(f"`{call.op}` with {pad}")
    amounts = [whole_number(call, "pad", n) for n in pad]
    if any(n < 0 for n in amounts):
        raise UnsupportedError(f"`{call.op}` with {pad}")
    around = [(0, 0)] * (len(shape) - len(pad) // 2) + list(zip(amounts[::2], amounts[1::2], strict=True))[::-1]
    result = tuple(f"padded{i}" if any(around[i]) else name for i, name in enumerate(names))
    sizes = {f"padded{i}": shape[i] + sum(around[i]) for i in range(len(shape)) if any(around[i])}
    return Bound(
        (names,),
        (result,),
        whole=frozenset({*sizes, *(name for name, n in zip(names, around, strict=True) if any(n))}),
        linear=() if value else (frozenset({0}),),
        attributes=(tuple(around), value or 0),
        sizes=sizes,
    )


def _surround(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    around, value = bound.attributes
    if not isinstance(around, tuple) or not isinstance(value, int | float):
        raise UnsupportedError(f"padding {around} with {value}")
    sizes: Any = [n for n in around if isinstance(n, tuple)]
    fill: Any = field.number(value)
    return (np.pad(operands[0], sizes, constant_values=fill),)


def _repeat(call: Call) -> Bound:
    call = call.with_arguments("repeats", "dim")
    call.reject_unknown("repeats", "dim", "output_size")
    call.expect(1)
    names = stars(len(call.shape(0)))
    dim = dimension(call, "dim", len(names))
    repeats = whole_number(call, "repeats", call.attributes.get("repeats"))
    if repeats < 1:
        raise UnsupportedError(f"`{call.op}` {repeats} times")
    size = repeats * call.shape(0)[dim]
    if call.attributes.get("output_size") not in (None, size):
        raise UnsupportedError(f"`{call.op}` with `output_size` {call.attributes['output_size']}")
    return Bound(
        (names,),
        ((*names[:dim], "repeated", *names[dim + 1 :]),),
        whole=frozenset({names[dim], "repeated"}),
        linear=(frozenset({0}),),
        attributes=(repeats,),
        sizes={"repeated": size},
    )


def _repeated(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    (repeats,) = bound.attributes
    axis = next(i for i, name in enumerate(bound.operands[0]) if name in bound.whole)
    return (np.repeat(operands[0], repeats if isinstance(repeats, int) else 1, axis=axis),)


SPECS = (
    *having(
        (Trait.JOIN,),
        OpSpec("cat", ("torch.cat", "torch.concat", "nnscaler.runtime.function.cat"), _concatenate, evaluate=_join),
        OpSpec("stack", ("torch.stack", "nnscaler.runtime.function.stack"), _stack, evaluate=_pile),
    ),
    *having(
        (Trait.POSITIONAL,),
        *having(
            (Trait.PADDING,),
            OpSpec("pad", ("torch.nn.functional.pad", "nnscaler.runtime.function.pad"), _pad, evaluate=_surround),
        ),
        OpSpec("repeat-interleave", in_torch("repeat_interleave"), _repeat, evaluate=_repeated),
    ),
)
