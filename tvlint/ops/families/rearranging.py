"""Operators that turn, repeat or drop elements in place of their dimensions, and values that gradients do not pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvlint.ir.operators import Literal, Value
from tvlint.ops.families.slicing import dimension, whole_number
from tvlint.ops.field import Array, Field
from tvlint.ops.spec import Bound, Call, OpSpec, Trait, UnsupportedError, having, stars
from tvlint.ops.spelling import in_torch
from tvlint.plurals import counted

_FIRST = (frozenset({0}),)
_MOST_PARTS = 4096


def _whole_numbers(call: Call, name: str) -> tuple[tuple[int, ...], Call]:
    """Attribute `name`, also where its numbers follow the tensor one by one, and the call without it."""
    literals = [operand.value for operand in call.inputs[1:] if isinstance(operand, Literal)]
    if len(literals) != len(call.inputs) - 1 or (literals and name in call.attributes):
        raise UnsupportedError(f"`{call.op}` of {counted(len(call.inputs), 'operand')}")
    given: Value = call.attributes.get(name)
    if literals:
        given = literals[0] if len(literals) == 1 and isinstance(literals[0], tuple) else tuple(literals)
    values = given if isinstance(given, tuple) else (given,)
    rest = {key: value for key, value in call.attributes.items() if key != name}
    return tuple(whole_number(call, name, value) for value in values), replace(call, inputs=call.inputs[:1], attributes=rest)


def _repeat(call: Call) -> Bound:
    """Return the tensor side by side with itself, `repeats` times along each dimension; further ones come first."""
    repeats, call = _whole_numbers(
        call, "dims" if "dims" in call.attributes else "repeats" if "repeats" in call.attributes else "size"
    )
    call.reject_unknown()
    shape = call.shape(0)
    new = len(repeats) - len(shape)
    if new < 0 or min(repeats, default=0) < 1:
        raise UnsupportedError(f"`{call.op}` of shape {shape} by {repeats}")
    names = stars(len(shape))
    result, sizes, whole = list[str](), dict[str, int](), set[str]()
    for i, times in enumerate(repeats):
        if i >= new and times == 1:
            result.append(names[i - new])
            continue
        result.append(f"repeated{i}")
        sizes[f"repeated{i}"] = times * (shape[i - new] if i >= new else 1)
        whole |= {f"repeated{i}", *names[max(i - new, 0) : i - new + 1]} if i >= new else {f"repeated{i}"}
    return Bound((names,), (tuple(result),), whole=frozenset(whole), linear=_FIRST, attributes=(repeats,), sizes=sizes)


def _tile(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    (repeats,) = bound.attributes
    return (np.tile(operands[0], [n for n in repeats if isinstance(n, int)] if isinstance(repeats, tuple) else 1),)


def _unbind(call: Call) -> Bound:
    call = call.with_arguments("dim")
    call.reject_unknown("dim")
    call.expect(1)
    shape = call.shape(0)
    dim = dimension(call, "dim", len(shape), 0)
    if shape[dim] > _MOST_PARTS:
        raise UnsupportedError(f"`{call.op}` into {shape[dim]}")
    names = stars(len(shape))
    rest = (*names[:dim], *names[dim + 1 :])
    return Bound((names,), (rest,) * shape[dim], whole=frozenset({names[dim]}), linear=_FIRST, attributes=(shape[dim],))


def _parts(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    axis = next(i for i, name in enumerate(bound.operands[0]) if name in bound.whole)
    return tuple(operands[0].take(i, axis=axis) for i in range(operands[0].shape[axis]))


def _flip(call: Call) -> Bound:
    dims, call = _whole_numbers(call, "dims")
    call.reject_unknown()
    names = stars(len(call.shape(0)))
    if not dims or any(not -len(names) <= dim < len(names) for dim in dims):
        raise UnsupportedError(f"`{call.op}` of dims {dims}")
    turned = tuple(sorted({dim % len(names) for dim in dims}))
    if len(turned) < len(dims):
        raise UnsupportedError(f"`{call.op}` of dims {dims}, which name one twice")
    return Bound((names,), (names,), whole=frozenset(names[dim] for dim in turned), linear=_FIRST, attributes=(turned,))


def _turn(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    return (np.flip(operands[0], tuple(i for i, name in enumerate(bound.operands[0]) if name in bound.whole)),)


def _roll(call: Call) -> Bound:
    call = call.with_arguments("shifts", "dims")
    call.reject_unknown("shifts", "dims")
    call.expect(1)
    names = stars(len(call.shape(0)))
    shifts, dims = (_listed(call, name) for name in ("shifts", "dims"))
    if len(shifts) != len(dims) or len(set(dims)) != len(dims) or any(not 0 <= dim < len(names) for dim in dims):
        raise UnsupportedError(f"`{call.op}` by {shifts} of dims {dims}")
    return Bound((names,), (names,), whole=frozenset(names[dim] for dim in dims), linear=_FIRST, attributes=(shifts, dims))


def _listed(call: Call, name: str) -> tuple[int, ...]:
    given = call.attributes.get(name)
    numbers = tuple(whole_number(call, name, value) for value in (given if isinstance(given, tuple) else (given,)))
    rank = len(call.shape(0))
    return tuple(n + rank if name == "dims" and n < 0 else n for n in numbers)


def _rolled(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    shifts, dims = ([n for n in value if isinstance(n, int)] if isinstance(value, tuple) else [] for value in bound.attributes)
    return (np.roll(operands[0], shifts, dims),)


def _triangle(call: Call) -> Bound:
    call = call.with_arguments("diagonal")
    call.reject_unknown("diagonal")
    call.expect(1)
    names = stars(len(call.shape(0)))
    if len(names) < 2:
        raise UnsupportedError(f"`{call.op}` of shape {call.shape(0)}")
    diagonal = whole_number(call, "diagonal", call.attributes.get("diagonal", 0))
    lower = call.op.rsplit(".", 1)[-1] == "tril"
    return Bound((names,), (names,), whole=frozenset(names[-2:]), linear=_FIRST, attributes=(lower, diagonal))


def _cut(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    lower, diagonal = bound.attributes
    offset = diagonal if isinstance(diagonal, int) else 0
    rows, columns = operands[0].shape[-2:]
    kept = np.tri(rows, columns, offset if lower else offset - 1, dtype=bool)
    return (np.where(kept if lower else ~kept, operands[0], field.number(0)),)


def _diagonal(call: Call) -> Bound:
    call = call.with_arguments("offset", "dim1", "dim2")
    call.reject_unknown("offset", "dim1", "dim2")
    call.expect(1)
    shape = call.shape(0)
    names = stars(len(shape))
    offset = whole_number(call, "offset", call.attributes.get("offset", 0))
    row, column = (dimension(call, name, len(shape), usual) for name, usual in (("dim1", 0), ("dim2", 1)))
    size = min(shape[row] + min(offset, 0), shape[column] - max(offset, 0))
    if row == column or size < 1:
        raise UnsupportedError(f"`{call.op}` {offset} of dimensions {row} and {column} of shape {shape}")
    rest = tuple(name for dim, name in enumerate(names) if dim not in (row, column))
    return Bound(
        (names,),
        ((*rest, "diagonal"),),
        whole=frozenset({names[row], names[column], "diagonal"}),
        linear=_FIRST,
        attributes=(offset, row, column),
        sizes={"diagonal": size},
    )


def _crossing(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    offset, row, column = (n for n in bound.attributes if isinstance(n, int))
    return (operands[0].diagonal(offset, row, column),)


def _detached(call: Call) -> Bound:
    call.reject_unknown()
    call.expect(1)
    names = stars(len(call.shape(0)))
    return Bound((names,), (names,), linear=_FIRST, zero_gradient=frozenset({0}))


def _same(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    return (operands[0],)


SPECS = (
    *having((Trait.APART, Trait.SELECTION), OpSpec("unbind", in_torch("unbind"), _unbind, evaluate=_parts)),
    *having(
        (Trait.MOVES,),
        *having(
            (Trait.SCAN,),
            *having((Trait.MIRROR,), OpSpec("flip", in_torch("flip"), _flip, evaluate=_turn, dimension=(0, None))),
            OpSpec("roll", in_torch("roll"), _roll, evaluate=_rolled, dimension=(1, None)),
        ),
        OpSpec("repeat", (*in_torch("tile"), "torch.Tensor.repeat"), _repeat, evaluate=_tile),
        *having((Trait.TRIANGLE,), OpSpec("tril", in_torch("tril", "triu"), _triangle, evaluate=_cut)),
        OpSpec("diagonal", in_torch("diagonal"), _diagonal, evaluate=_crossing),
        *having((Trait.DETACHED,), OpSpec("detach", in_torch("detach"), _detached, evaluate=_same)),
    ),
)
