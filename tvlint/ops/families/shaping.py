"""Operators that move elements and compute nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from tvlint.ir.operators import Literal, Value
from tvlint.ops.families.slicing import dimension
from tvlint.ops.field import Array, Field
from tvlint.ops.named_arrays import contract, spread
from tvlint.ops.spec import (
    ONE,
    PREVIOUS,
    Bound,
    Call,
    Family,
    MisfitError,
    OpSpec,
    Shape,
    Steps,
    Trait,
    UnsupportedError,
    having,
    stars,
)
from tvlint.ops.spelling import without_overload
from tvlint.plurals import counted

AS_WIDE = "expand_as_wide"
"""`expand` to sizes of another operand: no framework has it, readers state it where that is what a number stands for."""


def _transpose(call: Call) -> Bound:
    """Return two dimensions exchanged; `t` exchanges the only two."""
    turned = call.op.rsplit(".", 1)[-1] == "t"
    call = call.with_arguments(*(() if turned else ("dim0", "dim1")))
    call.reject_unknown(*(() if turned else ("dim0", "dim1")))
    call.expect(1)
    names = list(stars(len(call.shape(0))))
    operand = tuple(names)
    if turned and len(names) != 2:
        raise UnsupportedError(f"`{call.op}` of {counted(len(names), 'dimension')}")
    first, second = (0, 1) if turned else (dimension(call, name, len(names)) for name in ("dim0", "dim1"))
    names[first], names[second] = names[second], names[first]
    return Bound((operand,), (tuple(names),), linear=(frozenset({0}),))


def _turned(call: Call) -> tuple[int, ...]:
    """Return the dimensions of the operand in the order that `x.T` and `x.mT` have, as tracers write these attributes."""
    match call.inputs:
        case (tuple(shape), Literal(value="T")) if not call.attributes:
            return tuple(reversed(range(len(shape))))
        case (tuple(shape), Literal(value="mT")) if not call.attributes and len(shape) > 1:
            return (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        case _:
            names = ", ".join(f"`{operand.value}`" for operand in call.inputs if isinstance(operand, Literal))
            raise UnsupportedError(f"`{call.op}` of the attribute {names}")


def _attribute(call: Call) -> Bound:
    names = stars(len(call.shape(0)))
    return Bound((names,), (tuple(names[dim] for dim in _turned(call)),), linear=(frozenset({0}),))


def _moved(call: Call) -> tuple[int, ...]:
    """Return the dimensions of the operand in the order that they have in the result."""
    call = call.with_arguments("source", "destination")
    call.reject_unknown("source", "destination")
    call.expect(1)
    rank = len(call.shape(0))
    given = [call.attributes.get(name) for name in ("source", "destination")]
    sources, targets = ([dims] if isinstance(dims, int) else list(dims) if isinstance(dims, tuple) else [] for dims in given)
    both = [[dimension(Call(call.op, (), {"dim": dim}), "dim", rank) for dim in dims] for dims in (sources, targets)]
    if not both[0] or len(both[0]) != len(both[1]) or any(len(set(dims)) < len(dims) for dims in both):
        raise UnsupportedError(f"`{call.op}` of dims {given[0]} to {given[1]}")
    placed = dict(zip(both[1], both[0], strict=True))
    others = iter(dim for dim in range(rank) if dim not in both[0])
    return tuple(placed[at] if at in placed else next(others) for at in range(rank))


def _move_dimensions(call: Call) -> Bound:
    names = stars(len(call.shape(0)))
    return Bound((names,), (tuple(names[dim] for dim in _moved(call)),), linear=(frozenset({0}),))


def _permute(call: Call) -> Bound:
    call = _sizes_as_one(call, "dims")
    call.reject_unknown("dims")
    call.expect(1)
    names = stars(len(call.shape(0)))
    dims = call.attributes.get("dims")
    if not isinstance(dims, tuple) or not all(isinstance(dim, int) and -len(names) <= dim < len(names) for dim in dims):
        raise UnsupportedError(f"`permute` with dims {dims}")
    order = [dim % len(names) for dim in dims if isinstance(dim, int)]
    if sorted(order) != list(range(len(names))):
        raise UnsupportedError(f"`permute` with dims {dims}")
    return Bound((names,), (tuple(names[dim] for dim in order),), linear=(frozenset({0}),))


def _same(call: Call) -> Bound:
    call = call.with_arguments("times")
    call.reject_unknown("times", "memory_format")
    call.expect(1)
    times = call.attributes.get("times", 1)
    outputs = len(call.outputs) or times
    if isinstance(times, int) and min(times, len(call.outputs)) > 1 and outputs != times:
        raise MisfitError(f"`{call.op}` with `times` {times}", f"it gives {counted(times, 'result')}, and {outputs} are taken")
    if outputs != times or not isinstance(outputs, int) or not 0 < outputs < 4096:
        raise UnsupportedError(f"`{call.op}` with `times` {times} and {counted(len(call.outputs), 'result')}")
    names = stars(len(call.shape(0)))
    return Bound((names,), tuple(names for _ in range(outputs)), linear=(frozenset({0}),))


def _reshape(call: Call) -> Bound:
    call.reject_unknown(
        *(("start_dim", "end_dim") if _flattens(call) else ("dim", "sizes") if _splits(call) else ("size", "shape"))
    )
    return Bound((stars(len(call.shape(0))),), (), linear=(frozenset({0}),))


def _flattens(call: Call) -> bool:
    return without_overload(call.op).rsplit(".", 1)[-1] in ("flatten", "ravel")


def _splits(call: Call) -> bool:
    return without_overload(call.op).rsplit(".", 1)[-1] == "unflatten"


def viewed_shape(call: Call, before: Shape) -> Shape:
    """Return the shape that a view of a tensor of shape `before` has.

    Raises MisfitError for one of another number of elements, and UnsupportedError where the call does not say which.
    """
    asked = _view_sizes(call, before)
    sizes = [size for size in asked if type(size) is int] if isinstance(asked, tuple) else []
    total, fixed = prod(before), prod(size for size in sizes if size != -1)
    if not isinstance(asked, tuple) or len(sizes) < len(asked) or sizes.count(-1) > 1 or min(sizes, default=0) < -1:
        raise UnsupportedError(f"`{call.op}` to {asked}")
    if -1 in sizes and not fixed:
        raise UnsupportedError(f"`{call.op}` of no elements to {asked}")
    if total % fixed if -1 in sizes else total != fixed:
        raise MisfitError(f"`{call.op}` of shape {before}", f"shape {asked} has {counted(fixed, 'element')} instead of {total}")
    return tuple(total // fixed if size == -1 else size for size in sizes)


def _view_sizes(call: Call, before: Shape) -> Value:
    """Return the sizes that a view of a tensor of shape `before` asks for, one of which may be -1, as the call gives them."""
    if _flattens(call):
        call = call.with_arguments("start_dim", "end_dim")
        first = dimension(call, "start_dim", len(before), 0)
        last = dimension(call, "end_dim", len(before), -1)
        if first > last:
            raise UnsupportedError(f"`{call.op}` from dim {first} to {last}")
        return (*before[:first], prod(before[first : last + 1]), *before[last + 1 :])
    if _splits(call):
        call = call.with_arguments("dim", "sizes")
        at, sizes = dimension(call, "dim", len(before)), call.attributes.get("sizes")
        if not isinstance(sizes, tuple):
            raise UnsupportedError(f"`{call.op}` into {sizes}")
        return (*before[:at], *sizes, *before[at + 1 :])
    size = call.attributes.get("size", call.attributes.get("shape"))
    literals = [operand.value for operand in call.inputs[1:] if isinstance(operand, Literal)]
    if size is not None or not literals:
        return size
    return literals[0] if len(literals) == 1 and isinstance(literals[0], tuple) else tuple(literals)


def _sizes_as_one(call: Call, name: str) -> Call:
    """Return the call with whole numbers that follow its tensor as the attribute `name`, one tuple."""
    if name in call.attributes or len(call.inputs) < 2:
        return call
    values = [operand.value for operand in call.inputs[1:] if isinstance(operand, Literal)]
    if len(values) != len(call.inputs) - 1:
        raise UnsupportedError(f"`{call.op}` of {counted(len(call.inputs), 'operand')}")
    given: Value = values[0] if len(values) == 1 and isinstance(values[0], tuple) else tuple(values)
    return Call(call.op, call.inputs[:1], {**call.attributes, name: given}, call.outputs)


def _unsqueeze(call: Call) -> Bound:
    call = call.with_arguments("dim")
    call.reject_unknown("dim")
    call.expect(1)
    names = stars(len(call.shape(0)))
    dim = dimension(call, "dim", len(names) + 1)
    return Bound((names,), ((*names[:dim], ONE, *names[dim:]),), linear=(frozenset({0}),))


def _squeeze(call: Call) -> Bound:
    """Along given dimensions of size 1, or all of them, also where the batch is whole."""
    call = _sizes_as_one(call, "dim")
    call.reject_unknown("dim")
    call.expect(1)
    shape = call.shape(0)
    given = call.attributes.get("dim", _in_ones(shape))
    listed = given if isinstance(given, tuple) else (given,)
    dims = {dimension(Call(call.op, (), {"dim": dim}), "dim", len(shape)) for dim in listed}
    if len(dims) < len(listed) or any(shape[dim] != 1 for dim in dims):
        raise UnsupportedError(f"`{call.op}` of dims {sorted(dims)} of shape {shape}")
    names = tuple(ONE if i in dims else name for i, name in enumerate(stars(len(shape))))
    return Bound((names,), (tuple(name for i, name in enumerate(names) if i not in dims),), linear=(frozenset({0}),))


def _in_ones(shape: Shape) -> tuple[int, ...]:
    """Return the dimensions of size 1."""
    return tuple(dim for dim, size in enumerate(shape) if size == 1)


def _squeezed_of_all(local: Call, whole: Call) -> Call:
    """Return the call on the whole tensor, of which a rank takes all dimensions away that are one long where it runs."""
    named = _sizes_as_one(whole, "dim")
    return named if "dim" in named.attributes else replace(named, attributes={"dim": _in_ones(local.shape(0))})


def _expand(call: Call) -> Bound:
    """Dimensions of size 1 and new leading ones get the size that is given; others keep theirs.

    As `AS_WIDE`, the dimensions `dims` of the result are as long as the dimensions `of` of another operand.
    """
    if call.op != AS_WIDE:
        return _expanded(_sizes_as_one(call, "size"), {})
    call.expect(2)
    dims, of = call.attributes.get("dims"), call.attributes.get("of")
    other = tuple(f"wide{name}" for name in stars(len(call.shape(1))))
    if not isinstance(dims, tuple) or not isinstance(of, tuple) or not len(set(dims)) == len(set(of)) == len(dims) == len(of):
        raise UnsupportedError(f"`{call.op}` of dims {dims} as dims {of}")
    if not all(isinstance(dim, int) and 0 <= dim < len(other) for dim in of):
        raise UnsupportedError(f"`{call.op}` as dims {of} of shape {call.shape(1)}")
    given = {name: value for name, value in call.attributes.items() if name not in ("dims", "of")}
    as_wide = {dim: other[at] for dim, at in zip(dims, of, strict=True) if isinstance(dim, int) and isinstance(at, int)}
    bound = _expanded(Call(call.op, call.inputs[:1], given, call.outputs), as_wide)
    second = frozenset({1})
    return replace(bound, operands=(*bound.operands, other), shape_only=second, zero_gradient=second)


def _expanded(call: Call, as_wide: Mapping[int, str]) -> Bound:
    """Return the annotation of an expansion; `as_wide` are the names of dimensions whose size another operand gives."""
    call.reject_unknown("size", "implicit")
    call.expect(1)
    shape, size = call.shape(0), call.attributes.get("size")
    if not isinstance(size, tuple) or len(size) < len(shape) or not all(isinstance(n, int) for n in size):
        raise UnsupportedError(f"`{call.op}` to {size}")
    made = call.outputs[0] if call.outputs else size
    stated = [n in (-1, size_made) or i in as_wide for i, (n, size_made) in enumerate(zip(size, made, strict=False))]
    if len(made) != len(size) or not all(stated):
        raise UnsupportedError(f"`{call.op}` to {size}, whose result is declared {made}")
    new = len(size) - len(shape)
    operand, result, sizes = list(stars(len(shape))), list[str](), dict[str, int]()
    for i, wanted in enumerate(n for n in size if isinstance(n, int)):
        free = i < new or (shape[i - new] == 1 and (wanted != 1 or i in as_wide))
        if i in as_wide:
            if not free:
                raise UnsupportedError(f"`{call.op}` along dim {i} of size {shape[i - new]}")
            result.append(as_wide[i])
            if i >= new:
                operand[i - new] = ONE
        elif free and (wanted > 0 or i < new):
            if wanted < 1:
                raise UnsupportedError(f"`{call.op}` to {size}")
            result.append(f"wide{i}")
            sizes[f"wide{i}"] = wanted
            if i >= new:
                operand[i - new] = ONE
        elif not call.outputs and wanted not in (-1, shape[i - new]):
            raise MisfitError(f"`{call.op}` of shape {shape} to {size}", f"dimension {i - new} is {shape[i - new]} long")
        else:
            result.append(operand[i - new])
    if not as_wide.keys() <= set(range(len(size))):
        raise UnsupportedError(f"`{call.op}` of dims {sorted(as_wide)} to {size}")
    return Bound((tuple(operand),), (tuple(result),), linear=(frozenset({0}),), sizes=sizes)


def _new_and_wide(call: Call) -> Steps:
    """Return an expansion to new dimensions as what makes them, one long each, and what widens them."""
    if call.op == AS_WIDE:
        return ()
    given = _sizes_as_one(call, "size")
    size = given.attributes.get("size")
    new = len(size) - len(call.shape(0)) if isinstance(size, tuple) else 0
    if new < 1 or given.attributes.keys() != {"size"}:
        return ()
    made = [("unsqueeze", (PREVIOUS if number else 0, Literal(0))) for number in range(new)]
    return (*made, ("expand", (PREVIOUS, Literal(size))))


def _widen(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    kept = [name for name in bound.operands[0] if name != ONE]
    bare = operands[0].reshape([n for name, n in zip(bound.operands[0], operands[0].shape, strict=True) if name != ONE])
    narrow = spread(bare, kept, tuple(name if name in kept else ONE for name in bound.outputs[0]))
    other = zip(bound.operands[1], operands[1].shape, strict=True) if len(bound.operands) > 1 else ()
    sizes = {**dict(other), **bound.sizes}
    return (np.broadcast_to(narrow, [sizes.get(name, n) for name, n in zip(bound.outputs[0], narrow.shape, strict=True)]),)


def _copies(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    return (operands[0],) * len(bound.outputs)


_VIEWS = tuple(f"torch.Tensor.{name}" for name in ("view", "reshape", "flatten", "ravel", "unflatten"))

SPECS = (
    *having(
        (Trait.VIEW,),
        *having(
            (Trait.TRANSPOSE,),
            OpSpec(
                "transpose",
                (
                    *(
                        f"{module}.{name}"
                        for name in ("transpose", "swapaxes", "swapdims")
                        for module in ("torch", "torch.Tensor")
                    ),
                    "torch.t",
                    "torch.Tensor.t",
                ),
                _transpose,
                evaluate=contract,
            ),
            OpSpec("permute", ("torch.permute", "torch.Tensor.permute"), _permute, evaluate=contract),
            OpSpec(
                "attribute",
                ("builtins.getattr",),
                _attribute,
                steps=lambda call: (("permute", (0, Literal(_turned(call)))),),
                evaluate=contract,
            ),
            OpSpec(
                "movedim",
                tuple(f"{module}.{name}" for name in ("movedim", "moveaxis") for module in ("torch", "torch.Tensor")),
                _move_dimensions,
                steps=lambda call: (("permute", (0, Literal(_moved(call)))),),
                evaluate=contract,
            ),
        ),
        OpSpec("unsqueeze", ("torch.unsqueeze", "torch.Tensor.unsqueeze"), _unsqueeze, evaluate=contract),
        OpSpec("squeeze", ("torch.squeeze", "torch.Tensor.squeeze"), _squeeze, of_all=_squeezed_of_all, evaluate=contract),
        OpSpec(
            "identity",
            ("nnscaler.runtime.function.identity", "torch.Tensor.contiguous", "torch.clone", "torch.Tensor.clone"),
            _same,
            Family.IDENTITY,
            evaluate=_copies,
        ),
        OpSpec("multiref", ("nnscaler.runtime.function.multiref",), _same, Family.IDENTITY, evaluate=_copies),
        OpSpec("view", (*_VIEWS, "torch.reshape", "torch.flatten", "torch.ravel", "torch.unflatten"), _reshape, Family.RESHAPE),
    ),
    *having(
        (Trait.BROADCAST,),
        OpSpec(
            "expand",
            (
                "torch.Tensor.expand",
                "torch.broadcast_to",
                "torch.Tensor.broadcast_to",
                "nnscaler.runtime.function.expand",
                AS_WIDE,
            ),
            _expand,
            evaluate=_widen,
            steps=_new_and_wide,
        ),
    ),
)
